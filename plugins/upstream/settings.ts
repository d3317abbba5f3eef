import { z } from 'zod';
import { secret } from '../../core/contracts/outline.js';
import type { ClientCredentials, ClientDeadlines, TlsPolicy } from '../../core/smtp/client/remote-server.js';

const seconds = (fallback: number, most: number, description: string) =>
  z.int().min(1).max(most).default(fallback).describe(`${description} Seconds.`);

const host = z
  .string()
  .min(1)
  .max(255)
  .refine((written) => {
    const { host: name, port } = readHost(written);
    return /^[A-Za-z0-9_:.-]+$/.test(name) && (port === undefined || (port >= 1 && port <= 65_535));
  }, 'must be a host, an IP address, or one of them with :port');

/** Options shared by rules of the proxy and routes of LMTP. */
export const upstreamKeys = {
  hosts: z
    .array(host)
    .min(1)
    .max(20)
    .describe('Servers in the order in which they are tried; `host` or `host:port`.')
    .meta({ examples: [['mail1.example.net', '192.0.2.7:2525']] }),
  port: z.int().min(1).max(65_535).default(25).describe('Of hosts without a port of their own.'),
  tls: z
    .enum(['never', 'opportunistic', 'require', 'implicit'])
    .default('opportunistic')
    .describe(
      '`implicit`: TLS from the first byte. `opportunistic` continues in clear where the server offers no TLS.',
    ),
  verify: z.boolean().optional().describe('Check the certificate. By default: when TLS is required or implicit.'),
  auth: z
    .strictObject({
      user: z
        .string()
        .min(1)
        .max(255)
        .describe('Name to sign in with.')
        .meta({ examples: ['postern'] }),
      pass: secret().describe('Sent only under TLS.'),
    })
    .optional()
    .describe('How this server signs in there.'),
  maxConnections: z
    .int()
    .min(1)
    .max(10_000)
    .default(50)
    .describe('To each host at a time; for one client address at most half.'),
  idleSeconds: seconds(10, 3600, 'A connection without work is kept for so long.'),
  timeouts: z
    .strictObject({
      connectSeconds: seconds(5, 300, 'To call one address.'),
      answerSeconds: seconds(25, 300, 'All that is needed to answer one RCPT; less than `smtp.limits.handlerSeconds`.'),
      dataSeconds: seconds(240, 3600, 'The reply to the whole message; less than `smtp.limits.deliverySeconds`.'),
    })
    .prefault({}),
  breaker: z
    .strictObject({
      failures: z.int().min(1).max(1000).default(3).describe('This number of calls in a row that failed opens it.'),
      seconds: seconds(30, 86_400, 'While it is open the host is passed over.'),
    })
    .prefault({}),
};

const UpstreamOptions = z.object(upstreamKeys);
type UpstreamOptions = z.output<typeof UpstreamOptions>;

/** @param protocol `smtp` sends HELO, `esmtp` EHLO */
export function upstreamSettings(
  options: UpstreamOptions,
  { protocol, xclient = false }: { readonly protocol: 'smtp' | 'esmtp' | 'lmtp'; readonly xclient?: boolean },
): UpstreamSettings {
  const { hosts, port, tls, verify, auth, timeouts, breaker } = options;
  const answerMs = timeouts.answerSeconds * 1000;
  const dataMs = timeouts.dataSeconds * 1000;
  // After TLS that hangs there is time for a connection without it.
  const tlsMs = tls === 'opportunistic' ? answerMs / 2 : answerMs;
  const steps = { greetingMs: answerMs, helloMs: answerMs, tlsMs, authMs: answerMs };
  return {
    hosts,
    port,
    protocol: protocol === 'lmtp' ? 'lmtp' : 'smtp',
    extensions: protocol !== 'smtp',
    tls: { mode: tls, ...(verify !== undefined && { verify }) },
    ...(auth !== undefined && { auth: { username: auth.user, password: auth.pass, plaintext: 'never' } }),
    xclient,
    connections: options.maxConnections,
    idleMs: options.idleSeconds * 1000,
    answerMs,
    deadlines: {
      ...steps,
      connectMs: Math.min(timeouts.connectSeconds * 1000, answerMs),
      mailMs: answerMs,
      rcptMs: answerMs,
      dataMs: Math.min(60_000, dataMs),
      blockMs: dataMs,
      finalMs: dataMs,
      finalsMs: dataMs,
    },
    breaker: { failures: breaker.failures, pauseMs: breaker.seconds * 1000 },
  };
}

/** The servers of one upstream, and how to talk to them. */
export interface UpstreamSettings {
  /** Tried in this order: names or IP addresses, optionally with `:port`. */
  readonly hosts: readonly string[];
  readonly port: number;
  readonly protocol: 'smtp' | 'lmtp';
  /** False: HELO. */
  readonly extensions?: boolean;
  readonly tls: TlsPolicy;
  readonly auth?: ClientCredentials;
  /** Sends the client's identity to servers that support it (XCLIENT); such connections serve one client only. */
  readonly xclient: boolean;
  /** Per host. */
  readonly connections: number;
  /** Milliseconds that an idle connection is kept. */
  readonly idleMs: number;
  /** Total timeout in milliseconds up to the reply to RCPT: connecting, MAIL and RCPT. */
  readonly answerMs: number;
  readonly deadlines: Partial<ClientDeadlines>;
  readonly breaker: BreakerOptions;
}

/** `host`, `host:port`, an IPv6 address, `[IPv6 address]:port`. */
export function readHost(written: string): { readonly host: string; readonly port: number | undefined } {
  const [, bracketed, name, port] = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(written) ?? [];
  const host = bracketed ?? name;
  if (host === undefined) return { host: written, port: undefined };
  return { host, port: port === undefined ? undefined : Number(port) };
}

export interface BreakerOptions {
  /** Consecutive failures that open it. */
  readonly failures: number;
  /** Milliseconds that it stays open. */
  readonly pauseMs: number;
}
