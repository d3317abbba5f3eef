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
          ca: z.string().min(1).optional().describe('PEM file of the authority; those of the system by default.'),
          cert: z.string().min(1).optional().describe('PEM file of the certificate that this server shows.'),
          key: z.string().min(1).optional().describe('PEM file of the key of that certificate.'),
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

export const ClusterOptions = z.strictObject({
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
});
export type ClusterSettings = z.output<typeof ClusterOptions>;
