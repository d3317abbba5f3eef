import type { DefaultState, ParameterizedContext } from 'koa';
import type { Account } from './endpoint.js';
import type { AuditNote } from '../problem.js';
import type { Route } from './routes.js';

/** What the stages of one request tell each other. */
export interface Exchange {
  readonly id: string;
  /** Monotonic milliseconds. */
  readonly started: number;
  /** Of the client: behind a trusted proxy, what that says. */
  readonly remoteAddress: string;
  /** The client is on this machine, and no proxy has forwarded its request. */
  readonly isLocal: boolean;
  account: Account | null;
  /** Set when the path and method belong to an endpoint. */
  route: Route | undefined;
  params: Readonly<Record<string, string>>;
  /** The page of the form, where the form says it itself. */
  page: string | undefined;
  /** The answer only asks to confirm: nothing was done. */
  asked: boolean;
  /** What the audit log shall say beside who, where and what status. */
  audit: AuditNote | undefined;
}

export interface ExchangeState extends DefaultState {
  exchange: Exchange;
}

export type Context = ParameterizedContext<ExchangeState, { compress?: boolean }>;
export type Next = () => Promise<unknown>;
/** One that has nothing to do afterwards returns what `next` returns: a promise less for every request. */
export type Stage = (ctx: Context, next: Next) => Promise<unknown>;

/** htmx asks for a part of the page; a restored history entry and a boosted link are whole pages. */
export function wantsFragment(ctx: Context): boolean {
  return (
    ctx.get('HX-Request') === 'true' &&
    ctx.get('HX-History-Restore-Request') !== 'true' &&
    ctx.get('HX-Boosted') !== 'true'
  );
}
