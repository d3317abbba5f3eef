import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { isPrivateAddress } from '../../core/dns/private-address.js';
import type { Resolver } from '../../core/dns/resolver.js';

export interface HttpsContext {
  readonly resolver: Pick<Resolver, 'resolve4' | 'resolve6'>;
  /** Allows private, loopback and link-local addresses. */
  readonly allowPrivate: boolean;
  readonly signal: AbortSignal;
  /** Default 443; tests use another. */
  readonly port?: number;
  /** PEM of trusted certificates instead of the system's. */
  readonly ca?: string;
}

interface HttpsCall {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Buffer;
}

/** Addresses of a host to try. */
const maxAddresses = 2;

/**
 * Calls a host that another domain has named: at public addresses only, with a valid certificate, without redirects.
 * Rejects with the reason; `read` gets the response and its result is passed on.
 */
export async function requestHost<T>(
  host: string,
  call: HttpsCall,
  context: HttpsContext,
  read: (response: IncomingMessage) => Promise<T>,
): Promise<T> {
  let failure: unknown = new Error(`${host} has no address that may be called`);
  for (const address of (await addressesOf(host, context)).slice(0, maxAddresses)) {
    try {
      const response = await send(host, address, call, context);
      try {
        return await read(response);
      } finally {
        response.destroy();
      }
    } catch (error) {
      failure = error;
      if (context.signal.aborted) break;
    }
  }
  throw failure;
}

async function addressesOf(host: string, { resolver, allowPrivate, signal }: HttpsContext): Promise<string[]> {
  const answers = await Promise.allSettled([resolver.resolve4(host, { signal }), resolver.resolve6(host, { signal })]);
  return answers
    .flatMap((answer) => (answer.status === 'fulfilled' ? answer.value.records : []))
    .filter((address) => allowPrivate || !isPrivateAddress(address));
}

function send(
  host: string,
  address: string,
  { method, path, headers, body }: HttpsCall,
  { port = 443, ca, signal }: HttpsContext,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const asking = request({
      method,
      host: address,
      port,
      servername: host,
      path,
      headers: { Host: host, ...headers },
      agent: false,
      signal,
      // Overrides the environment: an unauthenticated host is worthless.
      rejectUnauthorized: true,
      minVersion: 'TLSv1.2',
      ...(ca !== undefined && { ca }),
    });
    // An error may follow the response; after a protocol switch there is neither response nor error.
    asking.once('response', resolve).on('error', reject);
    asking.once('close', () => reject(new Error(`${host} gives no answer`)));
    asking.end(body);
  });
}
