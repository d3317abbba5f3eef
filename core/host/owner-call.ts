import type { OwnerCall } from '../contracts/server.js';
import { readLock } from '../disk/lock.js';
import { ownerUsername } from '../http/accounts.js';
import { startError } from '../problem.js';

/** `fetch` of Node.js waits no longer. Slow work, such as the recovery of a large quarantine, has to fit. */
const defaultTimeoutMs = 300_000;

/** Calls the process that owns the data folder; undefined when none does. */
export async function lockOwner(data: string, timeoutMs = defaultTimeoutMs): Promise<OwnerCall | undefined> {
  const lock = await readLock(data);
  if (lock === undefined) return undefined;
  const { pid, http, token } = lock;
  if (http === null || token === null) {
    throw startError(`Process ${pid} owns the data folder ${data} and is not ready yet: try again in a moment.`);
  }
  return (method, path, body) => call({ url: new URL(path, http), pid, token, timeoutMs }, method, body);
}

interface Owner {
  readonly url: URL;
  readonly pid: number;
  readonly token: string;
  readonly timeoutMs: number;
}

async function call({ url, pid, token, timeoutMs }: Owner, method: string, body: unknown): ReturnType<OwnerCall> {
  const headers = {
    accept: 'application/json, */*;q=0.5',
    authorization: `Basic ${Buffer.from(`${ownerUsername}:${token}`).toString('base64')}`,
    ...(body !== undefined && { 'content-type': 'application/json' }),
  };
  try {
    const answer = await fetch(url, {
      method,
      headers,
      redirect: 'manual',
      signal: AbortSignal.timeout(timeoutMs),
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    const isJson = /\bjson\b/.test(answer.headers.get('content-type') ?? '');
    const parsed: unknown = isJson ? JSON.parse(text) : text;
    return { status: answer.status, body: text === '' ? undefined : parsed };
  } catch (cause) {
    throw startError(`The running server (process ${pid}) does not answer at ${url.origin}.`, cause);
  }
}
