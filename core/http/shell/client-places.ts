import type { Readable } from 'node:stream';
import { FairQueue, type TaskPath } from '../../fair-queue.js';
import { clientPath, turns } from '../../turns.js';
import { hasBody } from '../body.js';
import type { Response } from '../endpoint.js';
import type { Context, Middleware, Next } from '../exchange.js';
import { isLoopback } from '../request-checks.js';

/** Work of one client at a time. A network may do more: it may be that of many. */
interface PlaceLimits {
  readonly client: number;
  /** IPv4 /16 and IPv6 /32. */
  readonly widest: number;
  /** Networks between those and a client. */
  readonly wide: number;
}

const requestLimits: PlaceLimits = { client: 8, wide: 128, widest: 256 };
const streamLimits: PlaceLimits = { client: 32, wide: 256, widest: 512 };
/** Behind a proxy that the configuration does not name are many clients. */
const ofUnnamedProxy = 64;
const unnamedProxy = 'proxy';
const maxWaitMs = 10_000;

type Leave = () => void;

/** The places of one kind of work, by address and by account. */
class Places {
  readonly #addresses: FairQueue;
  readonly #accounts: FairQueue;

  constructor({ client, wide, widest }: PlaceLimits, detail: string) {
    const options = { concurrency: Infinity, maxWaiting: Infinity, maxWaitingPerClient: Infinity };
    const refusal = { maxWaitMs, retryAfterSeconds: 5, detail };
    const ofLevel = [Infinity, widest, wide];
    this.#addresses = new FairQueue({
      ...options,
      ...refusal,
      limit: (name, level) => (name === unnamedProxy ? ofUnnamedProxy : (ofLevel[level] ?? client)),
    });
    this.#accounts = new FairQueue({ ...options, ...refusal, limit: (_, level) => (level === 0 ? Infinity : client) });
  }

  /**
   * Takes a place, after a wait where there is none; what is returned gives it back.
   *
   * @throws Problem `unavailable` after 10 s without a place, or when the client has gone
   */
  take(ctx: Context): Leave | Promise<Leave> {
    const { account } = ctx.state.exchange;
    const address = addressPath(ctx);
    const leave = (): void => this.#addresses.leave(address);
    const wait = this.#addresses.enter(address, gone(ctx));
    if (account === null) return wait === undefined ? leave : wait.then(() => leave);
    const name: TaskPath = ['account', account.username];
    return wait === undefined
      ? this.#takeOfAccount(ctx, name, leave)
      : wait.then(() => this.#takeOfAccount(ctx, name, leave));
  }

  #takeOfAccount(ctx: Context, name: TaskPath, leaveAddress: Leave): Leave | Promise<Leave> {
    const leave = (): void => {
      this.#accounts.leave(name);
      leaveAddress();
    };
    const wait = this.#accounts.enter(name, gone(ctx));
    if (wait === undefined) return leave;
    return wait.then(
      () => leave,
      (error: unknown) => {
        leaveAddress();
        throw error;
      },
    );
  }
}

/**
 * Bounds what one client, by address and by account, makes this server do at a time: further requests wait. One whose
 * answer is a stream gives its place back when its header is written; streams and uploads have places of their own.
 */
export class ClientPlaces {
  readonly #requests = new Places(
    requestLimits,
    'Too many requests of this client are at work. Try again in a moment.',
  );
  readonly #uploads = new Places(requestLimits, 'This client has too many uploads under way. Try again in a moment.');
  readonly #streams = new Places(streamLimits, 'This client has too many downloads and streams open.');
  #unnamedProxies = 0;

  /** Requests since the start that came from loopback for others, through a proxy that is not named in `trustedProxies`. */
  get ofUnnamedProxies(): number {
    return this.#unnamedProxies;
  }

  readonly takePlace: Middleware = (ctx: Context, next: Next): Promise<unknown> => {
    const { remoteAddress } = ctx.state.exchange;
    const isOfProxy = isOfUnnamedProxy(ctx);
    if (isOfProxy) this.#unnamedProxies += 1;
    const isUpload = ctx.state.matched.route.endpoint.body?.kind === 'raw' && hasBody(ctx);
    const places = isUpload ? this.#uploads : this.#requests;
    // Where the address is not that of the peer, the request was read in the turn of the proxy.
    const isForwarded = !isOfProxy && ctx.get('X-Forwarded-For') !== '';
    const leave = isForwarded ? turns.wait(clientPath(remoteAddress)).then(() => places.take(ctx)) : places.take(ctx);
    return leave instanceof Promise ? leave.then((made) => goOn(ctx, next, made)) : goOn(ctx, next, leave);
  };

  /** To await before the answer is written. @throws Problem `unavailable` */
  async takeTransfer(ctx: Context, { stream, bytes }: Response): Promise<void> {
    if (stream === undefined && bytes === undefined) return;
    try {
      leaveAtEnd(ctx, await this.#streams.take(ctx));
    } catch (error) {
      stream?.source.destroy();
      await bytes?.source.close?.();
      throw error;
    }
  }
}

async function goOn(ctx: Context, next: Next, made: Leave): Promise<void> {
  const leave = leaveAtEnd(ctx, made);
  await next(ctx);
  if (isStream(ctx.body)) leave();
}

/** At the end of the answer at the latest. */
function leaveAtEnd({ res, state }: Context, leave: Leave): Leave {
  const leaveOnce = once(leave);
  if (res.closed) leaveOnce();
  else state.exchange.atEnd.push(leaveOnce);
  return leaveOnce;
}

function addressPath(ctx: Context): TaskPath {
  const path = clientPath(ctx.state.exchange.remoteAddress);
  return isOfUnnamedProxy(ctx) ? ['http', ...path.slice(0, 1), unnamedProxy] : ['http', ...path];
}

/** Of a peer on this machine that says it asks for somebody else. */
function isOfUnnamedProxy(ctx: Context): boolean {
  const { isLocal, remoteAddress, forwarder } = ctx.state.exchange;
  return !isLocal && forwarder === undefined && isLoopback(remoteAddress);
}

/** Aborts when the client has gone. */
function gone({ res, state }: Context): () => AbortSignal {
  return () => {
    const controller = new AbortController();
    if (res.closed) controller.abort();
    else state.exchange.atEnd.push(() => controller.abort());
    return controller.signal;
  };
}

const isStream = (body: unknown): body is Readable => typeof (body as Partial<Readable> | null)?.pipe === 'function';

function once(act: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) act();
    isDone = true;
  };
}
