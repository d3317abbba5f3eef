import { z } from 'zod';

const serverName = /^(?:\*\.)?[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+$/;

/** The policy for senders of mail to the local domains (RFC 8461 §3.2). */
export const StsPolicyOptions = z.strictObject({
  mode: z
    .enum(['enforce', 'testing', 'none'])
    .default('testing')
    .describe(
      '`enforce`: other servers send mail only under TLS with a valid certificate. `testing`: they send it anyway, and report failures. `none`: withdraws an earlier policy.',
    ),
  mx: z
    .array(z.string().max(253).regex(serverName, 'must be a host name in lower case, or *. and one'))
    .max(100)
    .default([])
    .describe(
      'The servers that take the mail, as in the MX records; `*.example.org` is for one label. Empty: `hostname`.',
    )
    .meta({ examples: [['mail.example.org']] }),
  maxAge: z
    .int()
    .min(3600)
    .max(31_557_600)
    .default(604_800)
    .describe('How long other servers keep the policy. Seconds.'),
});

export type StsPolicySettings = z.output<typeof StsPolicyOptions>;

/** Its servers, in lower case. */
export const stsServers = ({ mx }: Pick<StsPolicySettings, 'mx'>, hostname: string): readonly string[] =>
  mx.length === 0 ? [hostname.toLowerCase()] : mx;

/** What `https://mta-sts.DOMAIN/.well-known/mta-sts.txt` says (RFC 8461 §3.2). */
export function stsPolicyText(settings: StsPolicySettings, hostname: string): string {
  const { mode, maxAge } = settings;
  const servers = mode === 'none' ? [] : stsServers(settings, hostname).map((name) => `mx: ${name}`);
  return ['version: STSv1', `mode: ${mode}`, ...servers, `max_age: ${maxAge}`, ''].join('\r\n');
}

/** True when the policy allows that server (RFC 8461 §4.1): a wildcard is exactly one label, the first. */
export function allowsServer({ mx }: { readonly mx: readonly string[] }, host: string): boolean {
  const name = host.toLowerCase().replace(/\.$/, '');
  const below = name.slice(name.indexOf('.'));
  return mx.some((allowed) => (allowed.startsWith('*.') ? allowed.slice(1) === below : allowed === name));
}
