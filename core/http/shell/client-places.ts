import { FairQueue, type TaskPath } from '../../fair-queue.js';
import { type ClientPath, clientPath, turns } from '../../turns.js';
import { problem } from '../../problem.js';
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
/** A proxy that the configuration does not name asks for many clients. */
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
    this.#accounts = new FairQueue({ ...options, ...refusal, limit: () => client });
  }

  /**
   * Takes a place until the answer has ended, after a wait where there is none; what is returned gives it back before.
   *
   * @throws Problem `unavailable` after 10 s without a place, or when the client has gone
   */
  take(ctx: Context): Leave | Promise<Leave> {
    const address = addressPath(ctx);
    if (ctx.res.closed) throw problem('unavailable', 'The client has gone.');
    const wait = this.#addresses.enter(address, ctx.state.exchange.atEnd);
    return wait === undefined ? this.#takeOfAccount(ctx, address) : wait.then(() => this.#takeOfAccount(ctx, address));
  }

  #takeOfAccount(ctx: Context, address: TaskPath): Leave | Promise<Leave> {
    const { account, atEnd } = ctx.state.exchange;
    if (account === null) return this.#taken(ctx, address);
    const name: TaskPath = ['account', account.username];
    const wait = this.#accounts.enter(name, atEnd);
    if (wait === undefined) return this.#taken(ctx, address, name);
    return wait.then(
      () => this.#taken(ctx, address, name),
      (error: unknown) => {
        this.#addresses.leave(address);
        throw error;
      },
    );
  }

  #taken(ctx: Context, address: TaskPath, account?: TaskPath): Leave {
    let isTaken = true;
    const leave = (): void => {
      if (!isTaken) return;
      isTaken = false;
      if (account !== undefined) this.#accounts.leave(account);
      this.#addresses.leave(address);
    };
    if (ctx.res.closed) leave();
    else ctx.state.exchange.atEnd.push(leave);
    return leave;
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
    const isForwarded = !isOfProxy && ctx.req.headers['x-forwarded-for'] !== undefined;
    const leave = isForwarded ? turns.wait(clientPath(remoteAddress)).then(() => places.take(ctx)) : places.take(ctx);
    if (leave instanceof Promise) return leave.then((made) => goOn(ctx, next, made));
    return goOn(ctx, next, leave);
  };

  /** To await before a stream is sent, which has a place of its own. @throws Problem `unavailable` */
  async takeStream(ctx: Context, { stream, bytes }: Response): Promise<void> {
    // It may fail while it waits.
    stream?.source.on('error', () => ctx.res.destroy());
    try {
      await this.#streams.take(ctx);
    } catch (error) {
      stream?.source.destroy();
      await bytes?.source.close?.();
      throw error;
    }
    ctx.state.exchange.leavePlace?.();
  }
}

function goOn(ctx: Context, next: Next, leave: Leave): Promise<unknown> {
  ctx.state.exchange.leavePlace = leave;
  return next(ctx);
}

const paths = new WeakMap<ClientPath, TaskPath>();

function addressPath(ctx: Context): TaskPath {
  const path = clientPath(ctx.state.exchange.remoteAddress);
  if (isOfUnnamedProxy(ctx)) return ['http', ...path.slice(0, 1), unnamedProxy];
  const remembered = paths.get(path);
  if (remembered !== undefined) return remembered;
  const taskPath: TaskPath = ['http', ...path];
  paths.set(path, taskPath);
  return taskPath;
}

/** Of a peer on this machine that says it asks for another client. */
function isOfUnnamedProxy(ctx: Context): boolean {
  const { isLocal, remoteAddress, forwarder } = ctx.state.exchange;
  return !isLocal && forwarder === undefined && isLoopback(remoteAddress);
}
