import { z } from 'zod';
import { compilePattern } from '../../../core/text/pattern.js';
import { isProblem } from '../../../core/problem.js';
import { upstreamKeys } from '../settings.js';
import { isNetworkText, networkFault } from './ip-condition.js';

const pattern = (of: string, example: string) =>
  z
    .string()
    .min(1)
    .max(1000)
    .exactOptional()
    .describe(of)
    .meta({ examples: [example] });

export const directions = ['in', 'out', 'both'] as const;

/** Relays mail to other servers while its client waits. */
const RuleOptions = z
  .strictObject({
    name: z
      .string()
      .regex(/^[a-z0-9][a-z0-9-]{0,62}$/)
      .exactOptional()
      .describe('Name in metrics, in the log and in the queue; `rule-1` for the first one without a name.')
      .meta({ examples: ['old-server'] }),
    ip: pattern(
      'Address of the client: a network (`10.0.0.0/8`), an address, or a pattern of the whole address.',
      '10.0.0.0/8',
    ),
    ehlo: pattern('Name that the client gives: a pattern of the whole name.', '.*\\.example\\.net'),
    mail: pattern(
      'Sender: a pattern of the whole address; the null reverse-path is an empty text.',
      '.*@example\\.org',
    ),
    rcpt: pattern('Recipient: a pattern of the whole address.', '.*@old\\.example\\.org'),
    direction: z
      .enum(directions)
      .default('both')
      .describe('`in`: from other servers; `out`: from users who have signed in, and from this server itself.'),
    ...upstreamKeys,
    protocol: z.enum(['smtp', 'esmtp', 'lmtp']).default('esmtp').describe('`smtp` says HELO, `esmtp` EHLO.'),
    recipients: z
      .enum(['none', 'accept', 'reject'])
      .default('none')
      .describe(
        'The other recipients of a transaction that this rule has the first recipient of: `none` treats them as usual, `accept` asks the same servers for them, `reject` refuses them.',
      ),
    xclient: z.boolean().default(false).describe('Tell the server who the client is, where it offers XCLIENT.'),
    split: z
      .enum(['spool', 'defer'])
      .default('spool')
      .describe(
        'A recipient of this rule in a transaction that another rule has the first recipient of: `spool` delivers it from the queue, `defer` answers 450.',
      ),
  })
  .superRefine((rule, context) => {
    for (const key of ['ip', 'ehlo', 'mail', 'rcpt'] as const) {
      const fault = rule[key] === undefined ? undefined : faultOf(key, rule[key]);
      if (fault !== undefined) context.addIssue({ code: 'custom', path: [key], message: fault });
    }
  });
export type RuleSettings = z.output<typeof RuleOptions>;

export const ProxyOptions = z.strictObject({
  rules: z
    .array(RuleOptions)
    .max(500)
    .default([])
    .superRefine((rules, context) => {
      const names = rules.map(ruleName);
      names.forEach((name, index) => {
        if (names.indexOf(name) === index) return;
        context.addIssue({ code: 'custom', path: [index, 'name'], message: `another rule is called ${name}` });
      });
    })
    .describe('The first one that matches a recipient takes it. A rule is leave to relay.'),
});
export type ProxySettings = z.output<typeof ProxyOptions>;

export const ruleName = ({ name }: Pick<RuleSettings, 'name'>, index: number): string => name ?? `rule-${index + 1}`;

function faultOf(key: 'ip' | 'ehlo' | 'mail' | 'rcpt', text: string): string | undefined {
  if (key === 'ip' && isNetworkText(text)) return networkFault(text);
  try {
    compilePattern(text, { ignoreCase: true });
    return undefined;
  } catch (error) {
    if (!isProblem(error)) throw error;
    return error.message;
  }
}
