import type { DefaultState, ParameterizedContext } from 'koa';
import type { Readable } from 'node:stream';
import type { HandlerInput, Representation, UploadedFile } from './endpoint.js';
import type { Account } from '../contracts/accounts.js';
import type { Forwarder } from '../contracts/other-nodes.js';
import type { Fields } from './validation.js';
import type { AuditNote } from '../problem.js';
import type { BrowserSession } from './sessions.js';
import type { Found, MatchedRoute, Route } from './routes.js';

/** What the stages of one request tell each other. */
export interface Exchange {
  readonly id: string;
  /** Monotonic milliseconds. */
  readonly started: number;
  /** Of the client: behind a trusted proxy, what that says. */
  readonly remoteAddress: string;
  /** The client is on this machine, and no proxy has forwarded its request. */
  readonly isLocal: boolean;
  /** The client speaks https to this server, or to a trusted proxy. */
  readonly isSecure: boolean;
  /** The node of a cluster that has sent the request for one of its clients. */
  readonly forwarder: Forwarder | undefined;
  /** The other node whose answer this is. */
  answeredBy: string | undefined;
  account: Account | null;
  /** The account that the request authenticates as; looked up once. */
  identified: Promise<Account | null> | undefined;
  /** The session whose cookie signed the account in. */
  session: BrowserSession | undefined;
  /** Set when the path and method belong to an endpoint. */
  route: Route | undefined;
  params: Readonly<Record<string, string>>;
  /** The page of the form, where the form says it itself. */
  page: string | undefined;
  /** Nothing was changed: the answer only asks to confirm, or counts what would be. */
  asked: boolean;
  /** Gives the place of the request back before its answer has ended. */
  leavePlace: (() => void) | undefined;
  /** Called when the answer has ended, whole or not: one listener for all, since Node.js warns of more than ten. */
  readonly atEnd: (() => void)[];
  /** What the audit log shall say beside who, where and what status. */
  audit: AuditNote | undefined;
}

/** State of a request; below `exchange`, each field is set by one middleware for those after it. */
export interface ExchangeState extends DefaultState {
  exchange: Exchange;
  /** Set by `findPath`. */
  found: Found;
  /** Set by `matchMethod`. */
  matched: MatchedRoute;
  /** Set by `negotiation`. */
  representation: Representation;
  /** Set by `bodyParser`; a URL-encoded form earlier, by `matchMethod`, since it may name a `_method`. */
  body: ReadBody;
  /** Set by `idempotency`: the `once` of the handler's request. */
  once?: string;
  /** Set by `inputReader`; its body by `bodyValidator`. */
  input: HandlerInput<unknown, unknown, unknown>;
}

/** A body as it was read; `form` fields are still text. */
export type ReadBody =
  | { readonly kind: 'none' }
  | { readonly kind: 'json'; readonly value: unknown }
  | { readonly kind: 'form'; readonly fields: Fields }
  | {
      readonly kind: 'raw';
      readonly stream: Readable | undefined;
      readonly files: readonly UploadedFile[];
      /** Text fields beside the files. */
      readonly fields: Fields;
    };

export type Context = ParameterizedContext<ExchangeState, { compress?: boolean }>;
/** The stages after one, which it calls with its own context: so one function serves all requests. */
export type Next = (ctx: Context) => Promise<unknown>;
/** One that has nothing to do afterwards returns what `next` returns: a promise less for every request. It may throw at once. */
export type Middleware = (ctx: Context, next: Next) => Promise<unknown>;

/** Signed in with a session, at this node or at the one that has forwarded the request. */
export const hasSession = ({ state: { exchange } }: Context): boolean =>
  exchange.session !== undefined || exchange.forwarder?.session === true;

/** htmx asks for a part of the page; a restored history entry and a boosted link are whole pages. */
export function wantsFragment(ctx: Context): boolean {
  return (
    ctx.get('HX-Request') === 'true' &&
    ctx.get('HX-History-Restore-Request') !== 'true' &&
    ctx.get('HX-Boosted') !== 'true'
  );
}
