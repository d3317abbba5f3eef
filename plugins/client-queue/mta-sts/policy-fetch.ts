import type { IncomingMessage } from 'node:http';
import { requestHost, type HttpsContext } from '../https-request.js';

export type PolicyFetchContext = HttpsContext;

const path = '/.well-known/mta-sts.txt';
/** As suggested by RFC 8461 §3.3. */
const maxBytes = 64 * 1024;

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
  const { signal } = context;
  const call = { method: 'GET', path, headers: { Accept: 'text/plain' } };
  return requestHost(host, call, context, async (response) => {
    const text = await textOf(response, host);
    // A response that this side aborted looks complete.
    signal.throwIfAborted();
    if (!response.complete) throw new Error(`${host} breaks off`);
    return text;
  });
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
