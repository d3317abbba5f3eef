import { z } from 'zod';
import { secret } from '../contracts/outline.js';
import { SocketName } from '../net/inherited-sockets.js';
import { NetworkList } from '../net/networks.js';

const name = z
  .string()
  .min(1)
  .max(128)
  .regex(/^[^:\p{Cc}]+$/u, 'must not contain a colon or control characters');

const Role = z.enum(['read', 'operate', 'admin']);

const AccountOptions = z
  .strictObject({
    username: name.describe('Name to sign in with.').meta({ examples: ['anna'] }),
    password: secret().optional().describe('Password in clear; better {env: "NAME"}, {file: "path"} or passwordHash.'),
    passwordHash: z
      .string()
      .startsWith('scrypt$')
      .meta({ secret: true })
      .optional()
      .describe('Password as scrypt$N$r$p$salt$hash: what postern password hash prints.')
      .meta({ examples: ['scrypt$…'] }),
    role: Role.describe(
      'read: service pages; operate: mail, queue, sending; admin: users, configuration, dumps, logs.',
    ),
  })
  .refine((account) => (account.password === undefined) !== (account.passwordHash === undefined), {
    message: 'give either password or passwordHash',
  });

const AccessRule = z
  .strictObject({
    match: z
      .string()
      .regex(
        /^(?:(?:GET|POST|PUT|PATCH|DELETE) )?\/[^\s?#]*$/,
        'must be a path such as "/metrics/*" or "GET /metrics/*"',
      )
      .describe('Path with * for any characters, optionally behind a method. GET covers HEAD too.')
      .meta({ examples: ['GET /metrics/*'] }),
    role: Role.optional().describe('The role that is needed.'),
    public: z.literal(true).optional().describe('No sign-in is needed.'),
    username: name
      .optional()
      .describe('Name of the one account that opens this, and nothing else.')
      .meta({ examples: ['prometheus'] }),
    password: secret().optional().describe('Password of that account; never empty.'),
    realm: z
      .string()
      .regex(/^[\x20\x21\x23-\x5b\x5d-\x7e]{1,100}$/, 'must be printable ASCII without quotes and backslashes')
      .optional()
      .describe('What a browser shows when it asks for that account.')
      .meta({ examples: ['Metrics'] }),
  })
  .superRefine((rule, context) => {
    const own = rule.username !== undefined || rule.password !== undefined || rule.realm !== undefined;
    const ways = [rule.role !== undefined, rule.public === true, own].filter(Boolean).length;
    if (ways !== 1) context.addIssue('give exactly one of role, public: true, or username with password');
    else if (own && (rule.username === undefined || rule.password === undefined))
      context.addIssue('username and password belong together, and neither may be empty');
  });

const seconds = (usual: number, least = 1) => z.int().min(least).max(86_400).default(usual);

const HttpLimits = z.strictObject({
  jsonBytes: z
    .int()
    .min(1024)
    .max(64 * 1024 * 1024)
    .default(1024 * 1024)
    .describe('Largest JSON or form body, in bytes.'),
  headerBytes: z
    .int()
    .min(4096)
    .max(256 * 1024)
    .default(16 * 1024)
    .describe('Largest request line and header section together, in bytes. Read at start.'),
  targetBytes: z.int().min(256).max(65_536).default(8192).describe('Longest path with query, in bytes.'),
  uploadFiles: z.int().min(1).max(1000).default(20).describe('Most files in one multipart upload.'),
  maxConnections: z
    .int()
    .min(1)
    .max(100_000)
    .default(1000)
    .describe('Open connections. One more ends the one that has waited longest for its client to send a request.'),
  connectionsPerClient: z
    .int()
    .min(1)
    .max(100_000)
    .default(100)
    .describe(
      'Open connections of one client address (IPv6: /64); its networks may have an eighth (/56), a quarter (/24, /48) and half (/16, /32) of maxConnections, if that is more. Loopback and trusted proxies have no such limit.',
    ),
  headersSeconds: seconds(15).describe('Time for the header section of a request.'),
  requestSeconds: seconds(120, 2).describe('Time for a whole request with its body.'),
  keepAliveSeconds: seconds(30).describe('How long an idle connection is kept.'),
  loginFailures: z.int().min(1).max(1000).default(10).describe('Failed sign-ins per user and address, then 429.'),
  loginFailuresPerClient: z
    .int()
    .min(1)
    .max(100_000)
    .default(50)
    .describe('Failed sign-ins per client address (IPv6: /64) with any names, then 429.'),
  loginWindowSeconds: seconds(600).describe('The time in which failures are counted.'),
  exemptLoopback: z
    .boolean()
    .default(true)
    .describe('Failures and connections from loopback are not limited, unless a proxy forwards them.'),
  credentialSeconds: z
    .int()
    .min(0)
    .max(3600)
    .default(60)
    .describe('How long a verified password is remembered (as a keyed digest); 0 = never.'),
  sessionIdleSeconds: z
    .int()
    .min(60)
    .max(30 * 86_400)
    .default(8 * 3600)
    .describe('A browser that is signed in and asks for nothing this long has to sign in again.'),
  sessionSeconds: z
    .int()
    .min(60)
    .max(90 * 86_400)
    .default(7 * 86_400)
    .describe('Greatest age of a browser session, however much it is used.'),
  sessionsPerAccount: z
    .int()
    .min(1)
    .max(100)
    .default(20)
    .describe('Browsers signed in with one account; one more ends the session unused longest.'),
});

const HttpsOptions = z
  .strictObject({
    host: z.string().min(1).default('0.0.0.0').describe('Address to listen on.'),
    port: z.int().min(0).max(65_535).default(443).describe('Port to listen on; 0 takes any free one.'),
    key: secret().optional().describe('Private key: a PEM file, or the PEM text itself.'),
    cert: z
      .string()
      .min(1)
      .optional()
      .describe('Certificate with its chain, as PEM; without key and cert that of the server.')
      .meta({ examples: ['tls/cert.pem'] }),
  })
  .refine(({ key, cert }) => (key === undefined) === (cert === undefined), {
    message: 'key and cert belong together: name a PEM file for each',
  });

export const HttpOptions = z.strictObject({
  host: z.string().min(1).default('127.0.0.1').describe('Address to listen on.'),
  port: z.int().min(0).max(65_535).default(8080).describe('Port to listen on; 0 takes any free one.'),
  socket: SocketName.optional(),
  https: HttpsOptions.optional().describe(
    'A second listener, with TLS. The plain one then redirects other machines to it.',
  ),
  publicUrls: z
    .array(z.url({ protocol: /^https?$/ }))
    .default([])
    .describe('Addresses under which browsers reach this server, for example through a proxy.')
    .meta({ examples: [['https://mail.example.org']] }),
  trustedProxies: NetworkList.describe(
    'Networks of reverse proxies whose X-Forwarded-For is believed: ["127.0.0.1", "10.0.0.0/8"].',
  ).meta({ examples: [['127.0.0.1']] }),
  accounts: z
    .array(AccountOptions)
    .optional()
    .describe('Who may sign in. When absent, admin lives in accounts.json in the data folder.'),
  access: z.array(AccessRule).default([]).describe('Who may reach which endpoint; the first match wins.'),
  viewOverrides: z
    .string()
    .min(1)
    .optional()
    .describe('Folder with views of your own in the place of single ones of the server: layout.njk, monitoring/….njk.')
    .meta({ examples: ['views'] }),
  limits: HttpLimits.prefault({}).describe('Limits of the management interface.'),
});

export type HttpSettings = z.output<typeof HttpOptions>;
export type HttpLimits = HttpSettings['limits'];
export type AccessRule = HttpSettings['access'][number];
export type ConfiguredAccount = NonNullable<HttpSettings['accounts']>[number];
