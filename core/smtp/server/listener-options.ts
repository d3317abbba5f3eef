import { z } from 'zod';
import { secret } from '../../contracts/outline.js';
import { SocketName } from '../../net/inherited-sockets.js';
import { canReusePort } from '../../net/listening-place.js';
import { NetworkList } from '../../net/networks.js';
import type { ListenerMode } from '../../pipeline/transaction.js';

const defaultPorts: Readonly<Record<ListenerMode, number>> = { mx: 2525, submission: 2587, lmtp: 2424 };

/** True for names and addresses that only this machine can reach. */
function isLoopback(host: string): boolean {
  const address = host.toLowerCase().replace(/^::ffff:/, '');
  return address === 'localhost' || address === '::1' || /^127(\.\d{1,3}){3}$/.test(address);
}

/** One SMTP listener. */
export const ListenerOptions = z
  .strictObject({
    name: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$/, 'must be a short name such as submission-tls')
      .optional()
      .describe('Name in logs, metrics and health; the mode if absent.')
      .meta({ examples: ['submission-tls'] }),
    host: z.string().min(1).default('127.0.0.1').describe('Address to listen on: 127.0.0.1, 0.0.0.0, ::, …'),
    port: z
      .int()
      .min(0)
      .max(65_535)
      .optional()
      .describe('TCP port; 0 takes a free one. If absent: mx 2525, submission 2587, lmtp 2424.'),
    fd: z
      .int()
      .min(3)
      .optional()
      .describe('File descriptor of a socket that listens already (socket activation); host and port are not used.'),
    socket: SocketName.optional(),
    reusePort: z
      .boolean()
      .default(false)
      .describe(
        'Other processes of the same user may have the port open too, each with reusePort; the system spreads connections over them. Needs Linux or FreeBSD, and Node.js 22.12, 23.1 or newer.',
      ),
    mode: z
      .enum(['mx', 'submission', 'lmtp'])
      .default('mx')
      .describe(
        'mx takes mail for local domains, submission mail of users who sign in, lmtp mail of a server in front.',
      ),
    tls: z
      .enum(['none', 'starttls', 'implicit'])
      .default('none')
      .describe(
        'starttls offers TLS, implicit starts with it; without key and cert, with the certificate of the server.',
      ),
    key: secret()
      .optional()
      .describe('Private key: a PEM file, or the PEM text itself.')
      .meta({ examples: ['tls/key.pem'] }),
    cert: z
      .string()
      .min(1)
      .optional()
      .describe('Certificate with its chain: a PEM file, or the PEM text itself.')
      .meta({ examples: ['tls/cert.pem'] }),
    ciphers: z
      .enum(['recommended', 'compatible'])
      .default('recommended')
      .describe('Cipher suites of TLS 1.2: those of RFC 9325 §4.2, or also those that only old clients need.'),
    allowPlaintextAuth: z
      .boolean()
      .default(false)
      .describe('Let users sign in without TLS: for a loopback listener, or one behind something that does TLS.'),
    proxyProtocol: NetworkList.describe(
      'Networks of proxies that begin each connection with a PROXY header, version 1 or 2: ["192.0.2.10"].',
    ).meta({ examples: [['192.0.2.10']] }),
    greetDelayMs: z
      .int()
      .min(0)
      .max(30_000)
      .default(0)
      .describe('How long the greeting waits for clients that talk too early, in milliseconds.'),
    lenientPaths: z
      .boolean()
      .default(false)
      .describe(
        'On a submission listener: take MAIL FROM:ann@example.org without angle brackets, as some old devices send it.',
      ),
  })
  .superRefine((listener, context) => {
    const complain = (path: string, message: string): void => {
      context.addIssue({ code: 'custom', path: [path], message });
    };
    const { fd, socket } = listener;
    if (fd !== undefined && socket !== undefined) complain('socket', 'give either fd or socket');
    if (listener.reusePort && !canReusePort()) {
      complain('reusePort', `this needs Node.js 22.12, 23.1 or newer, not ${process.versions.node}; or give socket`);
    }
    if (listener.reusePort && (fd !== undefined || socket !== undefined)) {
      complain('reusePort', 'a socket that is handed over is shared by the process that opened it');
    }
    if (listener.lenientPaths && listener.mode !== 'submission') {
      complain('lenientPaths', 'lenientPaths is for submission listeners only');
    }
    // The address of an inherited socket is unknown here.
    const isPrivate = fd === undefined && socket === undefined && isLoopback(listener.host);
    if (listener.tls !== 'none') {
      const { key, cert } = listener;
      if ((key === undefined) !== (cert === undefined)) {
        complain(key === undefined ? 'key' : 'cert', 'key and cert belong together: name a PEM file for each');
      }
    } else if (listener.mode === 'submission' && !listener.allowPlaintextAuth && !isPrivate) {
      complain(
        'tls',
        'a submission listener beyond loopback needs tls: "starttls" or "implicit", or allowPlaintextAuth: true',
      );
    }
  })
  .transform((listener) => ({
    ...listener,
    name: listener.name ?? listener.mode,
    port: listener.port ?? defaultPorts[listener.mode],
  }));

export type ListenerSettings = z.output<typeof ListenerOptions>;

/** No client could authenticate there, so it can accept no mail: it has neither TLS nor plaintext passwords. */
export function takesNoMail({ mode, tls, allowPlaintextAuth }: ListenerSettings): boolean {
  return mode === 'submission' && tls === 'none' && !allowPlaintextAuth;
}
