import { z } from 'zod';
import { secret } from '../../core/contracts/outline.js';
import { nameServer } from '../../core/dns/system-resolver.js';
import { replyCategories } from './delivery/reply-classification.js';

const seconds = (fallback: number, description: string) =>
  z.int().min(1).default(fallback).describe(`${description} Seconds.`);
const port = z.int().min(1).max(65535);
const host = z.string().min(1).max(255);

const tlsPolicies = ['never', 'opportunistic', 'require'] as const;

const Credentials = z.strictObject({
  user: z
    .string()
    .min(1)
    .max(255)
    .describe('Name to sign in with.')
    .meta({ examples: ['postern'] }),
  pass: secret().describe('Sent only under TLS.'),
});

/** Servers that mail is handed to by name instead of by MX. */
export const OutboundRouteOptions = z.strictObject({
  mx: z
    .array(host)
    .min(1)
    .max(20)
    .describe('Hosts, tried in this order.')
    .meta({ examples: [['smtp.example.net']] }),
  port: port.default(25).describe('Port of the hosts.'),
  protocol: z.enum(['smtp', 'lmtp']).default('smtp').describe('What the hosts speak.'),
  tls: z
    .enum([...tlsPolicies, 'implicit'])
    .default('opportunistic')
    .describe('`implicit`: TLS from the first byte.'),
  verify: z.boolean().optional().describe('Check the certificate. By default: when TLS is required or implicit.'),
  auth: Credentials.optional().describe('How this server signs in there.'),
  domains: z
    .array(z.string().min(1).max(255))
    .default([])
    .describe('Recipients of these domains take this route; `*.example.org` is for all domains below.')
    .meta({ examples: [['example.org', '*.example.org']] }),
});
export type OutboundRoute = z.output<typeof OutboundRouteOptions>;

const RetryOptions = z.strictObject({
  firstSeconds: seconds(
    300,
    'The first pause between two attempts. A server that could not be reached is not called for two minutes: in this time an attempt fails at once.',
  ),
  factor: z.number().min(1).max(10).default(2).describe('Each pause is the one before times this.'),
  maxSeconds: seconds(14_400, 'The longest pause.'),
  jitter: z
    .number()
    .min(0)
    .max(0.5)
    .default(0.2)
    .describe('Share by which a pause is made shorter or longer by chance.'),
});

const DestinationOptions = z.strictObject({
  maxConnections: z
    .int()
    .min(1)
    .max(1000)
    .default(20)
    .describe('Connections to one site at a time: to the servers that one set of MX records or one route names.'),
  ratePerMinute: z.int().min(1).optional().describe('Messages to one site in a minute; no limit when absent.'),
  messagesPerConnection: z.int().min(1).default(100).describe('A connection is closed after this number of messages.'),
  idleSeconds: seconds(5, 'A connection without work is closed.'),
});

/** Servers that share one set of limits, whatever domains they serve. */
const SiteOptions = z.strictObject({
  mx: z
    .array(host)
    .min(1)
    .max(100)
    .describe(
      'Names of mail servers; `*.example.net` is for all below. A destination belongs to the site when all of its best servers do.',
    )
    .meta({ examples: [['*.mail.example.net']] }),
  maxConnections: z.int().min(1).max(1000).exactOptional().describe('In place of `destination.maxConnections`.'),
  ratePerMinute: z.int().min(1).exactOptional().describe('In place of `destination.ratePerMinute`.'),
});

const Target = z.strictObject({
  host: host.describe('Name, IP address or network (`10.0.0.0/8`).').meta({ examples: ['test.example.org'] }),
  ports: z.array(port).default([25]).describe('Ports that may be named.'),
});

const DkimKey = z.strictObject({
  selector: z
    .string()
    .regex(/^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$/i)
    .describe('Name of the key: the public one is the TXT record of selector._domainkey.domain.')
    .meta({ examples: ['rsa1'] }),
  key: z
    .string()
    .min(1)
    .describe('File of the private key, PEM. A relative path is relative to the configuration file.')
    .meta({ examples: ['dkim/example.org.rsa1.pem'] }),
});
export type DkimKeySettings = z.output<typeof DkimKey>;

const ReplyRuleOptions = z.strictObject({
  name: z
    .string()
    .min(1)
    .max(100)
    .describe('Name of the rule, as pages show it.')
    .meta({ examples: ['full mailbox'] }),
  pattern: z
    .string()
    .min(1)
    .max(1000)
    .describe('RE2, without regard to case; occurs somewhere in code, status and text of a reply.')
    .meta({ examples: ['mailbox is full'] }),
  category: z.enum(replyCategories).default('other').describe('Why the server has said so.'),
  codes: z.enum(['4', '5']).exactOptional().describe('Only for replies of this first digit.'),
  action: z.enum(['defer', 'bounce']).exactOptional().describe('In place of what the first digit says.'),
  retryAfter: z
    .int()
    .min(1)
    .max(86_400)
    .exactOptional()
    .describe(
      'Pause until the next attempt, at most `retry.maxSeconds`. Where the schedule has a longer one, it counts for the first three attempts only. Seconds.',
    ),
});

/** Mail that goes out: routes, retries and limits. */
export const ClientQueueOptions = z.strictObject({
  routes: z
    .record(z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/), OutboundRouteOptions)
    .default({})
    .describe('Routes by name.'),
  defaultRoute: z
    .string()
    .optional()
    .describe('Name of the route for all mail that goes out. By MX when absent.')
    .meta({ examples: ['provider'] }),
  targets: z
    .array(Target)
    .default([])
    .describe('Hosts and ports that a caller of /client/send may name. Configured routes need no entry.'),
  cases: z
    .string()
    .optional()
    .describe('Folder of files that case definitions may read. A relative path is below the data folder.')
    .meta({ examples: ['cases'] }),
  retry: RetryOptions.prefault({}).describe('Pauses between two attempts.'),
  expireAfter: seconds(432_000, 'Mail that could not be delivered for so long is returned.'),
  warnAfter: z
    .int()
    .min(0)
    .default(14_400)
    .describe('After this time in the queue the sender gets a notice; 0 for never. Seconds.'),
  replyRules: z
    .array(ReplyRuleOptions)
    .max(200)
    .default([])
    .describe(
      'What replies of other servers mean, in front of the rules that come with the server; the first that fits.',
    ),
  housekeepingInterval: seconds(30, 'Pause between two rounds of housekeeping.'),
  keepFinished: z
    .int()
    .min(0)
    .default(604_800)
    .describe(
      'Finished entries can be looked up for so long, the newest 20,000 at most: each takes 1.5 to 2.5 KB of memory. In a cluster the newest 100,000, in the database. Seconds.',
    ),
  quarantineSeconds: z
    .int()
    .min(86_400)
    .default(2_592_000)
    .describe('What lies in the quarantine of the queue is removed after so long. Seconds.'),
  quarantineBytes: z
    .int()
    .min(1_048_576)
    .default(1_073_741_824)
    .describe(
      'When more than that lies in the quarantine of the queue, the oldest of what is older than a day is removed.',
    ),
  keepDeadLetters: z
    .int()
    .min(0)
    .default(2_592_000)
    .describe(
      'Mail that can be neither delivered nor returned is held for an operator for so long; 0 for ever. Seconds.',
    ),
  maxEntries: z
    .int()
    .min(1)
    .default(1_000_000)
    .describe('At this number of open entries mail for other servers is deferred.'),
  maxConnections: z.int().min(1).max(10_000).default(200).describe('Outgoing connections at a time.'),
  destination: DestinationOptions.prefault({}).describe(
    'Limits for each site, which all domains with the same servers share; /client/destinations changes those of one.',
  ),
  sites: z
    .record(z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/), SiteOptions)
    .default({})
    .describe('Sites by name, for providers whose customers have servers of different names.'),
  tls: z.enum(tlsPolicies).default('opportunistic').describe('TLS to servers that are found by MX.'),
  requireTls: z
    .array(z.string())
    .default([])
    .describe('Domains whose servers must offer TLS with a valid certificate; `*.example.org` is for all below.')
    .meta({ examples: [['example.net']] }),
  mtaSts: z
    .boolean()
    .default(true)
    .describe('Policies that domains publish for the mail to them (MTA-STS) are fetched, kept and obeyed.'),
  dane: z
    .boolean()
    .default(false)
    .describe(
      'TLSA records of mail servers found by MX are looked up and obeyed (DANE, RFC 7672). Needs `resolver.servers`: name servers that validate DNSSEC, reached over a path that others cannot change.',
    ),
  tlsReports: z
    .strictObject({
      send: z
        .boolean()
        .default(false)
        .describe(
          'Domains that ask for it (TLS-RPT) get a daily report about TLS of the connections to their servers, at the addresses that they name: by mail, signed with the DKIM key of the domain of `from`, or by https.',
        ),
      from: z
        .email()
        .max(254)
        .optional()
        .describe('Sender of the reports, who is asked about them. postmaster of the first of `domains` when absent.')
        .meta({ examples: ['postmaster@example.org'] }),
    })
    .prefault({})
    .describe('Reports about TLS to other domains (RFC 8460).'),
  port: port.default(25).describe('Port of servers that are found by MX.'),
  allowPrivateAddresses: z.boolean().default(false).describe('An MX may have a private or loopback address.'),
  localAddress: z
    .union([z.ipv4(), z.ipv6()], 'must be an IP address')
    .optional()
    .describe('Local IP address of outgoing connections.')
    .meta({ examples: ['192.0.2.1'] }),
  resolver: z
    .strictObject({
      servers: z
        .array(nameServer)
        .min(1)
        .optional()
        .describe(
          'Name servers that are asked where mail goes, `address` or `address:port`. Those of `dns.servers` when absent.',
        )
        .meta({ examples: [['127.0.0.1:5353']] }),
      timeoutMs: z.int().min(100).default(5000).describe('How long one of them is waited for at a time. Milliseconds.'),
    })
    .prefault({}),
  dkim: z
    .record(z.string(), z.union([DkimKey, z.array(DkimKey).min(1).max(4)]))
    .default({})
    .describe('Mail from these domains is signed, once with each key of its domain.'),
});
export type ClientQueueSettings = z.output<typeof ClientQueueOptions>;
