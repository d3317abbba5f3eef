import { problem } from '../problem.js';
import type { ReadBody } from './body.js';
import type { Context } from './exchange.js';
import { Fingerprint } from './fingerprint.js';
import type { KeptAnswer, KeptAnswers } from './idempotency.js';
import type { MatchedRoute } from './route-table.js';

const keptHeaders = ['Content-Type', 'Location', 'ETag', 'Cache-Control'];

/**
 * For endpoints that say `idempotent`: work whose `Idempotency-Key` has an answer already is not done again. Keys of different
 * accounts, methods and paths have nothing to do with each other.
 */
export async function onlyOnce(
  ctx: Context,
  { route }: MatchedRoute,
  body: ReadBody,
  answers: KeptAnswers,
  work: (body: ReadBody, once?: string) => Promise<void>,
): Promise<void> {
  const key = ctx.get('Idempotency-Key');
  if (route.endpoint.idempotent !== true || key === '') return work(body);
  if (!/^[\x21-\x7e]{1,255}$/.test(key)) {
    throw problem('bad-request', 'The Idempotency-Key must be 1 to 255 printable ASCII characters without blanks.');
  }
  const scope = [ctx.state.exchange.account?.username ?? '', route.endpoint.method, ctx.path, key];
  await answers.alone(JSON.stringify(scope), async (name) => {
    const fingerprint = new Fingerprint(body, ctx.querystring);
    const kept = await answers.find(name);
    if (kept !== undefined) return replay(ctx, kept, await fingerprint.digest());
    await work(fingerprint.body, name.slice(0, 32));
    if (isDone(ctx)) await answers.keep(name, { ...answerOf(ctx), fingerprint: await fingerprint.digest() });
  });
}

/** A confirmation page or a refusal is not what was asked for. */
function isDone(ctx: Context): boolean {
  const { body, status } = ctx;
  if (body !== null && body !== undefined && typeof body !== 'string') return false;
  return (
    status === 201 || status === 202 || status === 303 || (status >= 200 && status < 300 && ctx.type !== 'text/html')
  );
}

function answerOf(ctx: Context): Omit<KeptAnswer, 'fingerprint'> {
  const headers = keptHeaders
    .map((name) => [name, ctx.response.get(name)] as const)
    .filter(([, value]) => value !== '');
  return {
    status: ctx.status,
    headers: Object.fromEntries(headers),
    body: typeof ctx.body === 'string' ? ctx.body : '',
  };
}

function replay(ctx: Context, kept: KeptAnswer, fingerprint: string): void {
  if (kept.fingerprint !== fingerprint) {
    throw problem('invalid', 'This Idempotency-Key was used with another payload. Take a new key for a new request.');
  }
  ctx.status = kept.status;
  ctx.set(kept.headers);
  ctx.body = kept.body;
  // Koa takes a body for 200 or for text, unless told again.
  ctx.status = kept.status;
  ctx.set({ ...kept.headers, 'Idempotency-Replayed': 'true' });
}
