import koaBasicAuth from 'koa-basic-auth';
import { canHashNow, forClient } from '../auth/password.js';
import type { AttemptLimiter } from '../auth/rate.js';
import type { Log } from '../log/log.js';
import { clientKey } from '../net/ip-address.js';
import { isProblem, problem, type Problem, startError } from '../problem.js';
import { printable, secondsText } from '../text/format.js';
import type { Accounts } from './accounts.js';
import type { Access, Account, Endpoint, Method, Role } from './endpoint.js';
import type { Context, Next } from './exchange.js';
import type { AccessRule } from './options.js';

const rank: Readonly<Record<Role, number>> = { read: 1, operate: 2, admin: 3 };

export const holds = (account: Account | null, access: Access): boolean =>
  access === 'public' || (account !== null && rank[account.role] >= rank[access]);

interface AccessInput {
  readonly accounts: Pick<Accounts, 'verify' | 'isOwner' | 'remembers' | 'untilTakenAway'>;
  /** Failures by name and client. */
  readonly limiter: () => AttemptLimiter;
  /** Failures by client, whatever the name. */
  readonly clientLimiter: () => AttemptLimiter;
  /** Failures from loopback are not counted. */
  readonly exemptLoopback: () => boolean;
  readonly log: Log;
}

/** Characters of a name that are logged. */
const maxLoggedName = 100;

/** Decides who may pass a gate. All causes of a 401 look the same. */
export class AccessControl {
  readonly #input: AccessInput;
  /** The latest pending attempt of each name and address. */
  readonly #turns = new Map<string, Turn>();
  readonly #identified = new WeakMap<object, Promise<Account | null>>();

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
      // A public page never waits for the password checks of others.
      const credentials = parseBasic(ctx.get('Authorization'));
      if (typeof credentials === 'string') return;
      const { username, password } = credentials;
      if (!canHashNow() && !this.#input.accounts.remembers(username, password)) return;
      await this.identify(ctx).catch(asStranger);
      return;
    }
    const account = await this.identify(ctx);
    if (account === null) throw unauthorized('Postern');
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
    const identified = this.#identified.get(exchange) ?? this.#identify(ctx);
    this.#identified.set(exchange, identified);
    return identified;
  }

  async #identify(ctx: Context): Promise<Account | null> {
    const { exchange } = ctx.state;
    const credentials = parseBasic(ctx.get('Authorization'));
    if (typeof credentials === 'string') return null;
    exchange.account =
      (await this.#try(ctx, this.#input.accounts, credentials, ({ username, password }) =>
        this.#verify(username, password, exchange.remoteAddress),
      )) ?? null;
    return exchange.account;
  }

  /** Each request carries the password: a sign-in is logged when it is no longer cached. */
  async #verify(username: string, password: string, remote: string): Promise<Account | undefined> {
    const { accounts, log } = this.#input;
    const isRemembered = accounts.remembers(username, password);
    const account = await accounts.verify(username, password);
    if (account !== undefined && !isRemembered) log.info({ remote, user: account.username }, 'signed in');
    return account;
  }

  /** Calls `leave` when the account of the request is removed or changed before the response has ended. */
  untilTakenAway(ctx: Context, leave: () => void): void {
    const { account } = ctx.state.exchange;
    if (account !== null) ctx.res.once('close', this.#input.accounts.untilTakenAway(account, leave));
  }

  async #admitOwn(ctx: Context, gate: Extract<Gate, { kind: 'own' }>): Promise<void> {
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
  async #try(ctx: Context, gate: object, credentials: Credentials, verify: Verify): Promise<Account | undefined> {
    const { remoteAddress, isLocal } = ctx.state.exchange;
    const client = clientKey(remoteAddress);
    const check = async (): Promise<Account | undefined> => {
      const account = await forClient('http', remoteAddress, () => verify(credentials));
      const facts = { remote: remoteAddress, user: printable(credentials.username.slice(0, maxLoggedName)) };
      if (account === undefined) this.#input.log.info(facts, 'sign-in refused');
      return account;
    };
    const isOwner = this.#input.accounts.isOwner(credentials.username, credentials.password);
    if (isOwner || (isLocal && this.#input.exemptLoopback())) return check();
    const key = `${credentials.username.toLowerCase()}\0${client}`;
    const before = this.#turns.get(key);
    const turn =
      before?.gate === gate && isSame(before.credentials, credentials)
        ? before
        : { gate, credentials, outcome: this.#inTurn(before, { key, client }, check) };
    this.#turns.set(key, turn);
    try {
      return await turn.outcome;
    } finally {
      if (this.#turns.get(key) === turn) this.#turns.delete(key);
    }
  }

  async #inTurn(
    before: Turn | undefined,
    { key, client }: { readonly key: string; readonly client: string },
    check: () => Promise<Account | undefined>,
  ): Promise<Account | undefined> {
    await before?.outcome.catch(() => undefined);
    const limiter = this.#input.limiter();
    const clientLimiter = this.#input.clientLimiter();
    const wait = Math.max(limiter.retryAfter(key), clientLimiter.retryAfter(client));
    if (wait > 0) throw tooMany(wait);
    const account = await check();
    if (account === undefined) {
      limiter.record(key);
      clientLimiter.record(client);
    } else limiter.forget(key);
    return account;
  }
}

/** Credentials that are not checked now: a probe with an old password still learns that the server is up. */
function asStranger(error: unknown): void {
  if (!isProblem(error) || !['too-many-requests', 'unavailable'].includes(error.problem)) throw error;
}

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

export function unauthorized(realm: string): Problem {
  return problem('unauthorized', {
    detail: 'A valid username and password are needed.',
    headers: { 'WWW-Authenticate': `Basic realm="${realm}", charset="UTF-8"` },
  });
}

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
