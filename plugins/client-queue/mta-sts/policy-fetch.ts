import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { isPrivateAddress } from '../../../core/dns/private-address.js';
import type { Resolver } from '../../../core/dns/resolver.js';

export interface PolicyFetchContext {
  readonly resolver: Pick<Resolver, 'resolve4' | 'resolve6'>;
  /** Allows private, loopback and link-local addresses. */
  readonly allowPrivate: boolean;
  readonly signal: AbortSignal;
  /** Default 443; tests use another. */
  readonly port?: number;
  /** PEM of trusted certificates instead of the system's. */
  readonly ca?: string;
}

const path = '/.well-known/mta-sts.txt';
/** As suggested by RFC 8461 §3.3. */
const maxBytes = 64 * 1024;
/** Addresses of the policy host to try. */
const maxAddresses = 2;

/**
 * Fetches the policy file of a domain over HTTPS with a valid certificate, without redirects (RFC 8461 §3.3). Rejects
 * with the reason, at the latest when the signal aborts.
 */
export async function fetchPolicy(domain: string, context: PolicyFetchContext): Promise<string> {
  const { signal } = context;
  const overdue = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(new Error('its policy host did not answer in time')), { once: true });
  });
  return Promise.race([ask(domain, context), overdue]);
}

async function ask(domain: string, context: PolicyFetchContext): Promise<string> {
  const host = `mta-sts.${domain}`;
  const addresses = await addressesOf(host, context);
  let failure: unknown = new Error(`${host} has no address that may be called`);
  for (const address of addresses.slice(0, maxAddresses)) {
    try {
      return await get(host, address, context);
    } catch (error) {
      failure = error;
      if (context.signal.aborted) break;
    }
  }
  throw failure;
}

async function addressesOf(host: string, { resolver, allowPrivate, signal }: PolicyFetchContext): Promise<string[]> {
  const answers = await Promise.allSettled([resolver.resolve4(host, { signal }), resolver.resolve6(host, { signal })]);
  return answers
    .flatMap((answer) => (answer.status === 'fulfilled' ? answer.value.records : []))
    .filter((address) => allowPrivate || !isPrivateAddress(address));
}

async function get(host: string, address: string, { port = 443, ca, signal }: PolicyFetchContext): Promise<string> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const asking = request({
      host: address,
      port,
      servername: host,
      path,
      headers: { Host: host, Accept: 'text/plain' },
      agent: false,
      signal,
      // Overrides the environment: an unauthenticated policy is worthless.
      rejectUnauthorized: true,
      minVersion: 'TLSv1.2',
      ...(ca !== undefined && { ca }),
    });
    // An error may follow the response; after a protocol switch there is neither response nor error.
    asking.once('response', resolve).on('error', reject);
    asking.once('close', () => reject(new Error(`${host} gives no answer`)));
    asking.end();
  });
  try {
    const text = await textOf(response, host);
    // A response that this side aborted looks complete.
    signal.throwIfAborted();
    if (!response.complete) throw new Error(`${host} breaks off`);
    return text;
  } finally {
    response.destroy();
  }
}

async function textOf(response: IncomingMessage, host: string): Promise<string> {
  const { statusCode = 0, headers } = response;
  if (statusCode !== 200) throw new Error(`${host} answers ${statusCode}`);
  if (!/^text\/plain\s*(?:;|$)/i.test(headers['content-type'] ?? '')) throw new Error(`${host} sends no plain text`);
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBytes) throw new Error(`${host} sends more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
