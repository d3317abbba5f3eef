import { z } from 'zod';
import { isProblem } from '../../../core/problem.js';
import { parseAddress, parseDomain } from '../../../core/mime/address.js';
import { upstreamKeys } from '../settings.js';

const readable = (parse: (text: string) => unknown) => (text: string) => {
  try {
    parse(text);
    return true;
  } catch (error) {
    if (!isProblem(error)) throw error;
    return false;
  }
};
const domain = z.string().refine(readable(parseDomain), 'must be a domain');
const user = z.string().refine(readable(parseAddress), 'must be local@domain');

/** Domains and users whose mail goes to an LMTP server. */
export const LmtpRouteOptions = z
  .strictObject({
    name: z
      .string()
      .regex(/^[a-z0-9][a-z0-9-]{0,62}$/)
      .exactOptional()
      .describe('Name in metrics, in the log and in the queue; `route-1` for the first one without a name.')
      .meta({ examples: ['dovecot'] }),
    domains: z
      .array(domain)
      .default([])
      .describe('All recipients of these domains.')
      .meta({ examples: [['example.org']] }),
    users: z
      .array(user)
      .default([])
      .describe('These recipients alone, `local@domain`.')
      .meta({ examples: [['anna@example.org']] }),
    ...upstreamKeys,
    port: z.int().min(1).max(65_535).default(24).describe('Of hosts without a port of their own.'),
    tlsVerify: upstreamKeys.verify,
    verify: z
      .enum(['rcpt', 'directory'])
      .default('rcpt')
      .describe('Who knows the recipients: the LMTP server, asked at RCPT, or the users of this server.'),
  })
  .superRefine((route, context) => {
    if (route.domains.length + route.users.length > 0) return;
    context.addIssue({ code: 'custom', path: [], message: 'name domains or users: this route is for nobody' });
  });
export type RouteSettings = z.output<typeof LmtpRouteOptions>;

export const LmtpOptions = z.strictObject({
  routes: z
    .array(LmtpRouteOptions)
    .max(500)
    .default([])
    .superRefine((routes, context) => {
      const names = routes.map(routeName);
      names.forEach((name, index) => {
        if (names.indexOf(name) === index) return;
        context.addIssue({ code: 'custom', path: [index, 'name'], message: `another route is called ${name}` });
      });
    })
    .describe('Users count before domains; else the first route that names a domain.'),
});
export type LmtpSettings = z.output<typeof LmtpOptions>;

export const routeName = ({ name }: Pick<RouteSettings, 'name'>, index: number): string => name ?? `route-${index + 1}`;
