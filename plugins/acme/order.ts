import { createHash, createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import { z } from 'zod';
import { certificateRequest, makeCertificate } from '../../core/net/x509.js';
import { type AcmeClient, AcmeError, type AcmeResponse } from './acme-client.js';
import type { AcmeSettings } from './options.js';

const AcmeFault = z.object({ detail: z.string().max(2000).optional() });

const Order = z.object({
  status: z.enum(['pending', 'ready', 'processing', 'valid', 'invalid']),
  authorizations: z.array(z.url()).max(100),
  finalize: z.url(),
  certificate: z.url().optional(),
  error: AcmeFault.optional(),
});

const Authorization = z.object({
  status: z.string(),
  identifier: z.object({ value: z.string() }),
  challenges: z.array(
    z.object({
      type: z.string(),
      url: z.url(),
      token: z.string().optional(),
      error: AcmeFault.optional(),
    }),
  ),
});

/** An order on disk: after a crash it is finished, and no second certificate is asked for. */
export interface StartedOrder {
  readonly url: string;
  readonly names: readonly string[];
  /** PEM of the private key of the certificate. */
  readonly key: string;
}

interface OrderContext {
  readonly client: AcmeClient;
  readonly settings: Pick<AcmeSettings, 'names' | 'challenge'>;
  /** The order that a crash or an error has left. */
  readonly started: StartedOrder | null;
  /** Durable when it resolves; null ends the order. */
  readonly keep: (order: StartedOrder | null) => Promise<void>;
  readonly answers: ChallengeAnswers;
  readonly signal: AbortSignal;
  readonly now: () => number;
}

/** Where challenges are answered; each returns the undo. */
export interface ChallengeAnswers {
  http(token: string, keyAuthorization: string): () => void;
  tls(name: string, pair: { readonly key: string; readonly cert: string }): () => void;
}

const defaultPollMs = 1000;
const minPollMs = 250;
const maxPollMs = 30_000;
const maxPolls = 60;
const hourMs = 3_600_000;

/**
 * Obtains a certificate for the names: an order, its authorizations, the request, the download (RFC 8555 §7.4). The order
 * stays kept until the caller has written the certificate.
 *
 * @throws AcmeError
 */
export async function obtainCertificate(
  context: OrderContext,
): Promise<{ readonly key: string; readonly cert: string }> {
  const { client, keep } = context;
  const order = (await findStarted(context)) ?? (await startOrder(context));
  try {
    await authorize(context, await orderOf(client, order.url));
    const ready = await pollOrder(context, order.url, ['pending']);
    if (ready.status === 'ready') {
      const csr = certificateRequest(order.names, createPrivateKey(order.key)).toString('base64url');
      await client.post(ready.finalize, { csr });
    }
    const done = await pollOrder(context, order.url, ['pending', 'ready', 'processing']);
    if (done.certificate === undefined) throw new AcmeError('malformed', 'The authority names no certificate.');
    const { body } = await client.post(done.certificate);
    if (typeof body !== 'string') throw new AcmeError('malformed', 'The authority sent no certificate.');
    return { key: order.key, cert: body };
  } catch (error) {
    if (error instanceof AcmeError && endsOrder(error.type)) await keep(null);
    throw error;
  }
}

/** Whether the order cannot be finished later. */
const endsOrder = (type: string): boolean =>
  !['unreachable', 'rateLimited', 'serverInternal', 'badNonce'].includes(type);

async function findStarted({ client, started, settings, keep }: OrderContext): Promise<StartedOrder | undefined> {
  if (started === null) return undefined;
  const isSame =
    started.names.length === settings.names.length && started.names.every((name) => settings.names.includes(name));
  const order = isSame ? await orderOf(client, started.url).catch(unlessGone) : undefined;
  if (order !== undefined && order.status !== 'invalid') return started;
  await keep(null);
  return undefined;
}

function unlessGone(error: unknown): undefined {
  if (!(error instanceof AcmeError) || !endsOrder(error.type)) throw error;
}

async function startOrder({ client, settings, keep }: OrderContext): Promise<StartedOrder> {
  const { location } = await client.newOrder(settings.names);
  if (location === null) throw new AcmeError('malformed', 'The authority named no address of the order.');
  const order = { url: location, names: [...settings.names], key: newKey() };
  await keep(order);
  return order;
}

/** PEM of a new private key on P-256. */
export const newKey = (): string =>
  generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();

const orderOf = async (client: AcmeClient, url: string) => read(Order, await client.post(url));

function read<T>(schema: z.ZodType<T>, { body }: Pick<AcmeResponse, 'body'>): T {
  const { data } = schema.safeParse(body);
  if (data === undefined) throw new AcmeError('malformed', 'The authority sent an object that is not of ACME.');
  return data;
}

async function authorize(context: OrderContext, order: z.output<typeof Order>): Promise<void> {
  if (order.status !== 'pending') return;
  for (const url of order.authorizations) {
    const authorization = read(Authorization, await context.client.post(url));
    if (authorization.status === 'pending') await answer(context, url, authorization);
  }
}

async function answer(
  context: OrderContext,
  url: string,
  { identifier, challenges }: z.output<typeof Authorization>,
): Promise<void> {
  const { client, settings } = context;
  const challenge = challenges.find(({ type }) => type === settings.challenge);
  const { token = '' } = challenge ?? {};
  if (challenge === undefined || !/^[A-Za-z0-9_-]{1,256}$/.test(token)) {
    throw new AcmeError('malformed', `The authority offers no ${settings.challenge} for ${identifier.value}.`);
  }
  const withdraw = present(context, identifier.value, token);
  try {
    await client.post(challenge.url, {});
    await pollAuthorization(context, url);
  } finally {
    withdraw();
  }
}

function present({ client, settings, answers, now }: OrderContext, name: string, token: string): () => void {
  const keyAuthorization = `${token}.${client.thumbprint()}`;
  if (settings.challenge === 'http-01') return answers.http(token, keyAuthorization);
  const key = newKey();
  const cert = makeCertificate({
    names: [name],
    key: createPrivateKey(key),
    from: now() - hourMs,
    to: now() + 24 * hourMs,
    challenge: createHash('sha256').update(keyAuthorization).digest(),
  });
  return answers.tls(name, { key, cert });
}

async function pollAuthorization(context: OrderContext, url: string): Promise<void> {
  const { status, identifier, challenges } = await poll(context, url, Authorization, ['pending']);
  if (status === 'valid') return;
  const why = challenges.find(({ error }) => error?.detail !== undefined)?.error?.detail ?? `it is ${status}`;
  throw new AcmeError('unauthorized', `The authority does not accept ${identifier.value}: ${why}`);
}

async function pollOrder(context: OrderContext, url: string, waiting: readonly string[]) {
  const order = await poll(context, url, Order, waiting);
  if (order.status !== 'invalid') return order;
  throw new AcmeError('invalid', `The authority ended the order: ${order.error?.detail ?? 'it says no reason'}`);
}

/** Asks until the status is none of `waiting`, at the pace that the authority wishes, within bounds. */
async function poll<T extends { readonly status: string }>(
  { client, signal }: OrderContext,
  url: string,
  schema: z.ZodType<T>,
  waiting: readonly string[],
): Promise<T> {
  for (let polls = 0; polls < maxPolls; polls += 1) {
    const response = await client.post(url);
    const found = read(schema, response);
    if (!waiting.includes(found.status)) return found;
    const pause = Math.min(maxPollMs, Math.max(minPollMs, response.retryAfterMs ?? defaultPollMs));
    await setTimeout(pause, undefined, { signal });
  }
  throw new AcmeError('unreachable', 'The authority has not decided in time.');
}
