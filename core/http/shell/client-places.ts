import type { Readable } from 'node:stream';
import { FairQueue, type TaskPath } from '../../fair-queue.js';
import { clientPath, turns } from '../../turns.js';
import { hasBody } from '../body.js';
import type { Response } from '../endpoint.js';
import type { Context, Middleware, Next } from '../exchange.js';
import { isLoopback, plainAddress } from '../request-checks.js';

/** Work of one client at a time. A network may do more: it may be that of many. */
interface PlaceLimits {
  readonly client: number;
  /** IPv4 /16 and IPv6 /32. */
  readonly widest: number;
  /** Networks between those and a client. */
  readonly wide: number;
}

const requestLimits: PlaceLimits = { client: 8, wide: 128, widest: 256 };
const transferLimits: PlaceLimits = { client: 32, wide: 256, widest: 512 };
/** Behind a proxy that the configuration does not name are many clients. */
const ofUnnamedProxy = 64;
const unnamedProxy = 'proxy';
const maxWaitMs = 10_000;

/** The places of one kind of work, by address and by account. */
class Places {
  readonly #addresses: FairQueue;
  readonly #accounts: FairQueue;

  constructor({ client, wide, widest }: PlaceLimits, detail: string) {
    const options = { concurrency: Infinity, maxWaiting: Infinity, maxWaitingPerClient: Infinity };
    const refusal = { maxWaitMs, retryAfterSeconds: 5, detail };
    const ofLevel = [Infinity, widest, wide, wide];
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
  async take(ctx: Context): Promise<() => void> {
    const { account } = ctx.state.exchange;
    const address = addressPath(ctx);
    await this.#addresses.enter(address, gone(ctx));
    const leaveAddress = (): void => this.#addresses.leave(address);
    if (account === null) return leaveAddress;
    const name: TaskPath = ['account', account.username];
    try {
      await this.#accounts.enter(name, gone(ctx));
    } catch (error) {
      leaveAddress();
      throw error;
    }
    return () => {
      this.#accounts.leave(name);
      leaveAddress();
    };
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
  readonly #transfers = new Places(transferLimits, 'This client has too many uploads, downloads and streams open.');
  #unnamedProxies = 0;

  /** Requests since the start that came from loopback for others, through a proxy that is not named in `trustedProxies`. */
  get ofUnnamedProxies(): number {
    return this.#unnamedProxies;
  }

  readonly takePlace: Middleware = async (ctx: Context, next: Next): Promise<void> => {
    const { remoteAddress } = ctx.state.exchange;
    if (isOfUnnamedProxy(ctx)) this.#unnamedProxies += 1;
    // The turn in which the request was read was that of the proxy.
    if (plainAddress(ctx.req.socket.remoteAddress ?? '') !== remoteAddress) await turns.wait(clientPath(remoteAddress));
    const isUpload = ctx.state.matched.route.endpoint.body?.kind === 'raw' && hasBody(ctx);
    const leave = once(await (isUpload ? this.#transfers : this.#requests).take(ctx));
    ctx.res.once('close', leave);
    if (ctx.res.closed) leave();
    await next(ctx);
    if (isStream(ctx.body)) leave();
  };

  /** To await before the answer is written. @throws Problem `unavailable` */
  async takeTransfer(ctx: Context, { stream, bytes }: Response): Promise<void> {
    if (stream === undefined && bytes === undefined) return;
    try {
      const leave = await this.#transfers.take(ctx);
      ctx.res.once('close', leave);
      if (ctx.res.closed) leave();
    } catch (error) {
      stream?.source.destroy();
      await bytes?.source.close?.();
      throw error;
    }
  }
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
function gone({ res }: Context): () => AbortSignal {
  return () => {
    const controller = new AbortController();
    if (res.closed) controller.abort();
    else res.once('close', () => controller.abort());
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
