import { z } from 'zod';
import { secret } from '../../core/contracts/outline.js';

/** A loopback address or the folder of a Unix socket: what passes there stays on this machine. */
const staysHere = (host: string): boolean =>
  host.startsWith('/') || /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/.test(host);

const DatabaseOptions = z
  .strictObject({
    hosts: z
      .array(
        z
          .string()
          .regex(
            /^(?:\/.*|\[[0-9a-f:]+\](?::\d+)?|[^:/\s]+(?::\d+)?)$/i,
            'must be HOST, HOST:PORT or the folder of a socket',
          ),
      )
      .min(1)
      .max(10)
      .describe('Servers of the database, or the folder of its Unix socket. The first one that can be written is used.')
      .meta({ examples: [['10.0.0.10:5432', '10.0.0.11:5432']] }),
    name: z.string().min(1).max(63).default('postern').describe('Name of the database.'),
    user: z
      .string()
      .min(1)
      .max(63)
      .default('postern_app')
      .describe('Role of this server in the database. It owns no table there.'),
    password: secret().optional().describe('Password of the role.'),
    tls: z
      .union([
        z.literal('off'),
        z.strictObject({
          ca: z
            .string()
            .min(1)
            .optional()
            .describe('PEM file of the authority; those of the system by default.')
            .meta({ examples: ['/etc/postern/database-ca.pem'] }),
          cert: z
            .string()
            .min(1)
            .optional()
            .describe('PEM file of the certificate that this server shows.')
            .meta({ examples: ['/etc/postern/database.pem'] }),
          key: z
            .string()
            .min(1)
            .optional()
            .describe('PEM file of the key of that certificate.')
            .meta({ examples: ['/etc/postern/database.key'] }),
        }),
      ])
      .default({})
      .describe('`off` only for a socket or a loopback address. Certificate and host name are always checked.'),
  })
  .refine(({ hosts, tls }) => tls !== 'off' || hosts.every(staysHere), {
    path: ['tls'],
    message: 'may be off only where every host is a Unix socket or a loopback address',
  });
export type DatabaseSettings = z.output<typeof DatabaseOptions>;

const PeerOptions = z.strictObject({
  host: z
    .string()
    .min(1)
    .max(255)
    .default('0.0.0.0')
    .describe('Address on which this node listens for the others.')
    .meta({ examples: ['10.0.0.11'] }),
  port: z.int().min(1).max(65_535).default(2425).describe('Port on which it listens.'),
  address: z
    .string()
    .regex(/^(?:\[[0-9a-f:]+\]|[^:/\s]+)(?::\d+)?$/i, 'must be HOST or HOST:PORT')
    .optional()
    .describe('How the others reach it, `host` or `host:port`. The host is in its certificate. By default `hostname`.')
    .meta({ examples: ['mx1.internal:2425'] }),
  tls: z
    .strictObject({
      ca: z
        .string()
        .min(1)
        .describe('PEM file of the authority of the cluster. A certificate of it makes a node.')
        .meta({ examples: ['/etc/postern/cluster-ca.pem'] }),
      cert: z
        .string()
        .min(1)
        .describe('PEM file of the certificate of this node, for server and client.')
        .meta({ examples: ['/etc/postern/node.pem'] }),
      key: z
        .string()
        .min(1)
        .describe('PEM file of its key.')
        .meta({ examples: ['/etc/postern/node.key'] }),
    })
    .describe('Nodes show each other certificates; there is no way without.'),
});
export type PeerSettings = z.output<typeof PeerOptions>;

export const mailboxModes = ['here', 'owner', 'elsewhere', 'shared-disk'] as const;

export const ClusterOptions = z
  .strictObject({
    node: z
      .string()
      .regex(/^[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?$/, 'must be letters, digits, dots and hyphens, in lower case')
      .optional()
      .describe('Name of this server among the nodes; by default `hostname`.')
      .meta({ examples: ['mx1'] }),
    database: DatabaseOptions.describe('The PostgreSQL (14 or newer) that the nodes share.'),
    sessionSeconds: z
      .int()
      .min(2)
      .max(300)
      .default(30)
      .describe('A node that is silent for so long is dead to the others, and they send its mail.'),
    commitTimeoutSeconds: z
      .int()
      .min(1)
      .max(300)
      .default(30)
      .describe(
        'While the database is away, a message for others waits so long for it, then gets 451. Clients wait ten minutes at most for the reply to a message.',
      ),
    mailboxes: z
      .enum(mailboxModes)
      .default('here')
      .describe(
        'Where mailboxes are. `here`: on the node that takes the mail, for one node with mailboxes alone. `owner`: each on one node, and the others hand mail to it. `elsewhere`: behind routes of `plugins.lmtp`. `shared-disk`: you know that all nodes have one disk.',
      ),
    peers: PeerOptions.optional().describe(
      'How the nodes reach each other: for mailboxes of `owner`, and for the log of another node.',
    ),
  })
  .refine(({ mailboxes, peers }) => mailboxes !== 'owner' || peers !== undefined, {
    path: ['peers'],
    message: 'is needed for mailboxes of `owner`',
  });
export type ClusterSettings = z.output<typeof ClusterOptions>;
