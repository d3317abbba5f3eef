import koaBasicAuth from 'koa-basic-auth';
import { canHashNow, forClient } from '../auth/password.js';
import type { AttemptLimiter } from '../auth/rate.js';
import type { SignInAttempt } from '../contracts/sign-in-history.js';
import type { Log } from '../log/log.js';
import { clientKey } from '../net/ip-address.js';
import { isProblem, problem, type Problem, type ProblemDetails, startError } from '../problem.js';
import { printable, secondsText } from '../text/format.js';
import { type Accounts, ownerUsername } from './accounts.js';
import type { Access, Endpoint, Method } from './endpoint.js';
import type { Account, Role } from '../contracts/accounts.js';
import type { Forwarder } from '../contracts/other-nodes.js';
import type { Context, Next } from './exchange.js';
import type { AccessRule } from './options.js';
import type { BrowserSessions } from './sessions.js';

const rank: Readonly<Record<Role, number>> = { read: 1, operate: 2, admin: 3 };

export const holds = (account: Account | null, access: Access): boolean =>
  access === 'public' || (account !== null && rank[account.role] >= rank[access]);

interface AccessInput {
  readonly accounts: Pick<Accounts, 'find' | 'verify' | 'recall' | 'untilTakenAway'>;
  readonly sessions: () => Pick<BrowserSessions, 'find' | 'untilEnd'>;
  /** Failures by name and client. */
  readonly limiter: () => AttemptLimiter;
  /** Failures by client, whatever the name. */
  readonly clientLimiter: () => AttemptLimiter;
  /** Failures from loopback are not counted. */
  readonly exemptLoopback: () => boolean;
  readonly record: (attempt: SignInAttempt) => void;
  readonly log: Log;
  readonly hostname: string;
}

/** Characters of a name that are logged. */
const maxLoggedName = 100;

/** Decides who may pass a gate. All causes of a 401 look the same. */
export class AccessControl {
  readonly #input: AccessInput;
  /** The latest pending attempt of each name and address. */
  readonly #turns = new Map<string, Turn>();

  constructor(input: AccessInput) {
    this.#input = input;
  }

  /** Lets the request pass the gate, or throws 401, 403 or 429; sets the account of the exchange. */
  async admit(ctx: Context, gate: Gate): Promise<void> {
    if (gate.kind === 'own') {
      await this.#admitOwn(ctx, gate);
      return;
    }
    if (gate.access === 'public') {
      if (isWithoutCredentials(ctx) && ctx.state.exchange.forwarder === undefined) return;
      // A public page never waits for the password checks of others.
      const credentials = parseBasic(ctx.get('Authorization'));
      if (credentials === 'malformed') return;
      if (credentials !== 'none') {
        const { username, password } = credentials;
        if (!canHashNow() && this.#input.accounts.recall(username, password) === undefined) return;
      }
      await this.identify(ctx).catch(asStranger);
      return;
    }
    const account = await this.identify(ctx);
    if (account === null) throw signInFirst();
    if (!holds(account, gate.access)) {
      const detail = `This needs the role ${gate.access}; ${account.username} has the role ${account.role}.`;
      throw problem('forbidden', detail);
    }
  }

  /**
   * The account that the request authenticates as, or null. Computed once per request. A public page is also shown
   * after a wrong password.
   */
  identify(ctx: Context): Promise<Account | null> {
    const { exchange } = ctx.state;
    if (exchange.account !== null) return Promise.resolve(exchange.account);
    exchange.identified ??= this.#identify(ctx);
    return exchange.identified;
  }

  async #identify(ctx: Context): Promise<Account | null> {
    const { exchange } = ctx.state;
    if (exchange.forwarder !== undefined) return (exchange.account = this.#accountOf(exchange.forwarder));
    const credentials = parseBasic(ctx.get('Authorization'));
    if (credentials === 'none') return this.#identifySession(ctx);
    if (credentials === 'malformed') return null;
    const known = this.#input.accounts.recall(credentials.username, credentials.password);
    if (known !== undefined && this.#mayTryNow(ctx, known)) return (exchange.account = known);
    exchange.account =
      (await this.#try(ctx, this.#input.accounts, credentials, () =>
        this.#verify(credentials, 'basic', exchange.remoteAddress),
      )) ?? null;
    return exchange.account;
  }

  /** The account of this server with that name, with no more rights than it has at the other node. */
  #accountOf({ account, node }: Forwarder): Account | null {
    if (account === null) return null;
    const own = this.#input.accounts.find(account.username);
    if (own !== undefined) return rank[own.role] <= rank[account.role] ? own : account;
    const { hostname } = this.#input;
    throw problem(
      'forbidden',
      `${hostname} has no account ${account.username}, with which ${node} asks. Add it there.`,
    );
  }

  async #identifySession(ctx: Context): Promise<Account | null> {
    const token = sessionToken(ctx);
    const found = token === undefined ? undefined : await this.#input.sessions().find(token);
    if (found === undefined) return null;
    const { exchange } = ctx.state;
    exchange.session = found.session;
    exchange.account = found.account;
    return found.account;
  }

  /**
   * Checks the credentials of a form, with the same limits as those of a header.
   *
   * @throws Problem `too-many-requests`
   */
  signIn(ctx: Context, credentials: Credentials): Promise<Account | undefined> {
    const { remoteAddress } = ctx.state.exchange;
    return this.#try(
      ctx,
      this.#input.accounts,
      credentials,
      () => this.#verify(credentials, 'page', remoteAddress),
      'page',
    );
  }

  /** With Basic each request carries the password: a sign-in is logged when it is no longer cached. */
  async #verify(
    { username, password }: Credentials,
    protocol: HttpProtocol,
    address: string,
  ): Promise<Account | undefined> {
    const { accounts, log, record } = this.#input;
    const known = protocol === 'basic' ? accounts.recall(username, password) : undefined;
    const account = known ?? (await accounts.verify(username, password));
    if (account === undefined || known !== undefined) return account;
    log.info({ remote: address, user: account.username }, 'signed in');
    record({ username: account.username, address, protocol, result: 'accepted' });
    return account;
  }

  /** Calls `leave` when the account of the request is removed or changed, or its session ends, before the response has ended. */
  untilTakenAway(ctx: Context, leave: () => void): void {
    const { account, session } = ctx.state.exchange;
    if (account === null) return;
    const { accounts, sessions } = this.#input;
    const forgetAccount = accounts.untilTakenAway(account, leave);
    const forgetSession = session && sessions().untilEnd(session, leave);
    ctx.state.exchange.atEnd.push(() => {
      forgetAccount();
      forgetSession?.();
    });
  }

  async #admitOwn(ctx: Context, gate: Extract<Gate, { kind: 'own' }>): Promise<void> {
    if (ctx.state.exchange.forwarder !== undefined)
      throw problem('misdirected', `This page has a password of its own. Open it at ${this.#input.hostname}.`);
    const credentials = parseBasic(ctx.get('Authorization'));
    if (typeof credentials === 'string') throw unauthorized(gate.realm);
    const account = await this.#try(ctx, gate, credentials, async ({ username }): Promise<Account | undefined> => {
      const opened = await passes(ctx, gate);
      return opened ? { username, role: 'read' } : undefined;
    });
    if (account === undefined) throw unauthorized(gate.realm);
    ctx.state.exchange.account = account;
  }

  /**
   * Counts failures by name and client, and by client alone; beyond a limit nothing is tried any more. Attempts of the
   * same pair take turns, so that a thousand guesses at once are counted one by one; those with the same password at
   * the same gate share one. A command of this machine that has the owner's token is never limited.
   */
  async #try(
    ctx: Context,
    gate: object,
    credentials: Credentials,
    verify: Verify,
    protocol: HttpProtocol = 'basic',
  ): Promise<Account | undefined> {
    const { remoteAddress, isLocal } = ctx.state.exchange;
    const client = clientKey(remoteAddress);
    const { username } = credentials;
    const failed = (result: 'refused' | 'deferred'): void =>
      this.#input.record({ username, address: remoteAddress, protocol, result });
    const check = async (): Promise<Account | undefined> => {
      const account = await forClient('http', remoteAddress, () => verify(credentials));
      if (account !== undefined) return account;
      const user = printable(username.slice(0, maxLoggedName));
      this.#input.log.info({ remote: remoteAddress, user }, 'sign-in refused');
      failed('refused');
      return undefined;
    };
    const isOwner = this.#input.accounts.recall(username, credentials.password)?.username === ownerUsername;
    if (isOwner || (isLocal && this.#input.exemptLoopback())) return check();
    const key = `${username.toLowerCase()}\0${client}`;
    const before = this.#turns.get(key);
    const turn =
      before?.gate === gate && isSame(before.credentials, credentials)
        ? before
        : {
            gate,
            credentials,
            outcome: this.#inTurn(before, { key, client, deferred: () => failed('deferred') }, check),
          };
    this.#turns.set(key, turn);
    try {
      return await turn.outcome;
    } finally {
      if (this.#turns.get(key) === turn) this.#turns.delete(key);
    }
  }

  /**
   * Whether a password that is known to be right needs no turn: no client is limited, and no guess at it is pending. The
   * owner's token never needs one.
   */
  #mayTryNow(ctx: Context, account: Account): boolean {
    const { remoteAddress, isLocal } = ctx.state.exchange;
    if (account.username === ownerUsername || (isLocal && this.#input.exemptLoopback())) return true;
    const client = clientKey(remoteAddress);
    const key = `${account.username.toLowerCase()}\0${client}`;
    if (this.#turns.has(key) || this.#secondsToWait(key, client) > 0) return false;
    this.#input.limiter().forget(key);
    return true;
  }

  #secondsToWait(key: string, client: string): number {
    return Math.max(this.#input.limiter().retryAfter(key), this.#input.clientLimiter().retryAfter(client));
  }

  async #inTurn(
    before: Turn | undefined,
    { key, client, deferred }: { readonly key: string; readonly client: string; readonly deferred: () => void },
    check: () => Promise<Account | undefined>,
  ): Promise<Account | undefined> {
    await before?.outcome.catch(() => undefined);
    const limiter = this.#input.limiter();
    const clientLimiter = this.#input.clientLimiter();
    const wait = this.#secondsToWait(key, client);
    if (wait > 0) {
      deferred();
      throw tooMany(wait);
    }
    const account = await check();
    if (account === undefined) {
      limiter.record(key);
      clientLimiter.record(client);
    } else limiter.forget(key);
    return account;
  }
}

const isWithoutCredentials = ({ req: { headers } }: Context): boolean =>
  headers.authorization === undefined && headers.cookie === undefined;

/** The prefix binds the cookie to this host and to https (RFC 6265bis §4.1.3.2). */
const cookieName = (ctx: Context): string =>
  ctx.state.exchange.isSecure ? '__Host-postern-session' : 'postern-session';

/** The token in the session cookie; undefined when there is none. */
function sessionToken(ctx: Context): string | undefined {
  const field = ctx.req.headers.cookie;
  if (field === undefined) return undefined;
  const start = `${cookieName(ctx)}=`;
  const pair = field.split(';').find((one) => one.trimStart().startsWith(start));
  return pair?.trim().slice(start.length);
}

/** @param seconds 0 removes the cookie */
export function setSessionCookie(ctx: Context, token: string, seconds: number): void {
  const secure = ctx.state.exchange.isSecure ? '; Secure' : '';
  const attributes = `Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure}`;
  ctx.append('Set-Cookie', `${cookieName(ctx)}=${token}; ${attributes}`);
}

/** Credentials that are not checked now: a probe with an old password still learns that the server is up. */
function asStranger(error: unknown): void {
  if (!isProblem(error) || !['too-many-requests', 'unavailable'].includes(error.problem)) throw error;
}

type HttpProtocol = 'basic' | 'page';

type Verify = (credentials: Credentials) => Promise<Account | undefined>;

interface Turn {
  /** What the credentials are for: the accounts, or an endpoint with its own account. */
  readonly gate: object;
  readonly credentials: Credentials;
  readonly outcome: Promise<Account | undefined>;
}

const isSame = (one: Credentials, other: Credentials): boolean =>
  one.username === other.username && one.password === other.password;

async function passes(ctx: Context, gate: Extract<Gate, { kind: 'own' }>): Promise<boolean> {
  try {
    await gate.guard(ctx, () => Promise.resolve());
    return true;
  } catch (error) {
    if ((error as { status?: unknown }).status === 401) return false;
    throw error;
  }
}

/** The page with the form. */
export const signInPath = '/sign-in';

export function unauthorized(realm: string, more: Pick<ProblemDetails, 'instead'> = {}): Problem {
  return problem('unauthorized', {
    ...more,
    detail: 'A valid username and password are needed.',
    headers: { 'WWW-Authenticate': `Basic realm="${realm}", charset="UTF-8"` },
  });
}

/** Accounts of the server can sign in with the page, too. */
export const signInFirst = (): Problem =>
  unauthorized('Postern', { instead: [{ href: signInPath, title: 'Sign in' }] });

function tooMany(seconds: number): Problem {
  const wait = Math.max(1, Math.ceil(seconds));
  const detail = `Too many failed sign-ins. Try again in ${secondsText(wait)}.`;
  return problem('too-many-requests', { detail, headers: { 'Retry-After': String(wait) } });
}

/** Access to an endpoint. */
export type Gate =
  | { readonly kind: 'access'; readonly access: Access }
  | { readonly kind: 'own'; readonly realm: string; readonly guard: (ctx: Context, next: Next) => unknown };

interface CompiledRule {
  readonly method: string | undefined;
  readonly pattern: RegExp;
  readonly gate: Gate;
}

/** The access rules of the configuration, in order. */
export class AccessRules {
  readonly #rules: readonly CompiledRule[];

  constructor(rules: readonly AccessRule[]) {
    this.#rules = rules.map(compile);
  }

  /**
   * The gate of the first rule that matches the path, else the access that the endpoint declares.
   *
   * @param encoded path as it came in; rules match what it means
   */
  gate(method: Method, encoded: string, endpoint: Pick<Endpoint, 'access'>): Gate {
    if (this.#rules.length === 0) return { kind: 'access', access: endpoint.access };
    const path = decodeURIComponent(encoded);
    const rule = this.#rules.find((one) => (one.method ?? method) === method && one.pattern.test(path));
    return rule?.gate ?? { kind: 'access', access: endpoint.access };
  }
}

/** Case-insensitive: a rule that restricts a domain must also apply to its other spellings. */
function compile(rule: AccessRule): CompiledRule {
  const [first = '', second] = rule.match.split(' ');
  const path = second ?? first;
  const source = path
    .split('*')
    .map((literal) => literal.replace(/[.+?^${}()|[\]\\]/g, '\\$&'))
    .join('.*');
  return {
    method: second === undefined ? undefined : first,
    pattern: new RegExp(`^${source}$`, 'isu'),
    gate: gateOf(rule),
  };
}

function gateOf(rule: AccessRule): Gate {
  if (rule.public === true) return { kind: 'access', access: 'public' };
  if (rule.role !== undefined) return { kind: 'access', access: rule.role };
  const { username, password, realm = 'Postern' } = rule;
  // koa-basic-auth accepts every client when one of them is empty.
  if (username === undefined || username === '' || password === undefined || password === '') {
    throw startError(`http.access: the rule for ${rule.match} needs a username and a password that are not empty.`);
  }
  const guard = koaBasicAuth({ name: username, pass: password }) as (ctx: Context, next: Next) => unknown;
  return { kind: 'own', realm, guard };
}

/** Name and password of an `Authorization: Basic` field (RFC 7617). */
interface Credentials {
  readonly username: string;
  readonly password: string;
}

const longest = 4096;
const utf8 = new TextDecoder('utf-8', { fatal: true });

/** `none` when the field is absent, `malformed` when it is invalid: both are answered alike. */
export function parseBasic(field: string | undefined): Credentials | 'none' | 'malformed' {
  if (field === undefined || field === '') return 'none';
  const token = /^basic +([A-Za-z0-9+/]+={0,2}) *$/i.exec(field)?.[1];
  if (field.length > longest || token === undefined) return 'malformed';
  const text = decode(token);
  const colon = text?.indexOf(':') ?? -1;
  if (text === undefined || colon < 1 || /\p{Cc}/u.test(text)) return 'malformed';
  return { username: text.slice(0, colon), password: text.slice(colon + 1) };
}

function decode(token: string): string | undefined {
  try {
    return utf8.decode(Buffer.from(token, 'base64'));
  } catch {
    return undefined;
  }
}
