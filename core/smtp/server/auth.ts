import sasl from 'smtp-server/lib/sasl.js';
import type { SignInResult } from '../../contracts/sign-in-history.js';
import { asciiUpperCase } from '../../mime/character.js';
import { printable } from '../../text/format.js';
import { replies, reply, type Reply } from '../protocol/replies.js';
import type { ListenerContext } from './listener-context.js';
import type { SessionState } from './session-state.js';

/** Characters of a name that may be anything. */
const maxLoggedName = 100;

/** AUTH of one session (RFC 4954): whether and how often it may be tried, and the authenticated user. */
export class AuthCommand {
  readonly #context: ListenerContext;
  readonly #session: SessionState;
  #exchange: SaslExchange | undefined;
  #failures = 0;

  constructor(context: ListenerContext, session: SessionState) {
    this.#context = context;
    this.#session = session;
  }

  get active(): boolean {
    return this.#exchange?.active === true;
  }

  /** This listener accepts mail only from authenticated clients. */
  get required(): boolean {
    return this.#context.listener.mode === 'submission';
  }

  /** AUTH is allowed now: under TLS, or where the configuration allows passwords in clear text. */
  get offered(): boolean {
    const encrypted = this.#session.tls !== undefined;
    return this.required && (encrypted || this.#context.listener.allowPlaintextAuth);
  }

  begin(argument: string): Reply | Promise<Reply> {
    if (this.#session.user !== undefined) return replies.authAlready;
    if (!this.offered) return replies.encryptionForAuth;
    const [name = '', initial, ...more] = argument.split(/ +/);
    const mechanism = mechanisms.find((known) => known === asciiUpperCase(name));
    if (mechanism === undefined) return name === '' ? replies.badArguments : replies.authUnknown;
    if (more.length > 0) return replies.badArguments;
    if (this.#context.throttle.retryAfter(this.#session.remote.address) > 0) {
      this.#record('', 'deferred');
      return replies.authLater;
    }
    this.#exchange = new SaslExchange(mechanism, (credentials) => this.#check(credentials));
    return this.#exchange.begin(initial);
  }

  continue(line: string): Promise<Reply> {
    return this.#exchange?.continue(line) ?? Promise.resolve(replies.authAborted);
  }

  cancel(): void {
    this.#exchange = undefined;
  }

  /** Meanwhile other sessions may have exhausted the limit of the address. */
  async #check(credentials: Credentials): Promise<Reply> {
    const { throttle } = this.#context;
    const failures = this.#failures;
    const reply = await throttle.attempt(this.#session.remote.address, () => this.#decide(credentials));
    if (reply === undefined) {
      this.#record(credentials.username, 'deferred');
      return replies.authLater;
    }
    return this.#failures === failures ? reply : this.#penalise(reply);
  }

  async #decide(credentials: Credentials): Promise<Reply> {
    const { pipeline, meter, log } = this.#context;
    const session = this.#session;
    const snapshot = pipeline.snapshot();
    const decision = await snapshot.decide('auth', { session, ...credentials });
    if (decision.outcome === 'pass' && decision.user !== undefined) {
      session.user = decision.user;
      meter.signedIn('accepted');
      this.#record(decision.user.username, 'accepted');
      const { id, remote, user } = session;
      log.info({ session: id, remote: remote.address, user: user.username }, 'signed in');
      return replies.authDone;
    }
    if (decision.outcome === 'refuse' && decision.reply.code < 500) {
      meter.signedIn('deferred');
      this.#record(credentials.username, 'deferred');
      return decision.reply;
    }
    meter.signedIn('refused');
    this.#record(credentials.username, 'refused');
    const reply = decision.outcome === 'refuse' ? decision.reply : replies.authFailed;
    this.#count(credentials.username);
    snapshot.emit('rejected', {
      session,
      stage: 'auth',
      code: reply.code,
      status: reply.status ?? '5.7.8',
      text: reply.lines.join(' '),
    });
    return reply;
  }

  #record(username: string, result: SignInResult): void {
    this.#context.record({ username, address: this.#session.remote.address, protocol: 'smtp', result });
  }

  #count(username: string): void {
    const { throttle, log } = this.#context;
    const { id, remote } = this.#session;
    this.#failures += 1;
    const user = printable(username.slice(0, maxLoggedName));
    log.info({ session: id, remote: remote.address, user, failures: this.#failures }, 'sign-in refused');
    if (!throttle.record(remote.address)) return;
    const seconds = throttle.retryAfter(remote.address);
    log.warn({ session: id, remote: remote.address, seconds }, 'too many wrong passwords: the address has to wait');
  }

  async #penalise(reply: Reply): Promise<Reply> {
    const { limits } = this.#context.settings();
    if (!this.#session.exempt) await pause(limits.authDelaySeconds[this.#failures - 1] ?? 0);
    return this.#failures > limits.authFailures ? replies.tooManyFailures : reply;
  }
}

function pause(seconds: number): Promise<void> | void {
  if (seconds <= 0) return;
  return new Promise((resolve) => {
    setTimeout(resolve, seconds * 1000).unref();
  });
}

interface Credentials {
  readonly mechanism: 'PLAIN' | 'LOGIN';
  readonly username: string;
  readonly password: string;
}

/** Resolves with the reply: a 235 or a refusal. */
type CheckCredentials = (credentials: Credentials) => Promise<Reply>;

const mechanisms = ['PLAIN', 'LOGIN'] as const;
type Mechanism = (typeof mechanisms)[number];

type Done = () => void;
type Step = (line: string, done: Done) => void;

/** The part of smtp-server's connection that its mechanisms use. */
interface SaslHost {
  readonly id: string;
  readonly name: string;
  readonly session: { user?: unknown };
  _nextHandler: Step | false;
  send(code: number, text?: string): void;
  _transmissionType(): string;
  readonly _server: {
    readonly logger: { info(): void };
    onAuth(
      given: {
        readonly method: string;
        readonly username: string;
        readonly password: string;
        readonly authzid?: string;
      },
      session: unknown,
      callback: (error: Error | null, response?: { readonly user?: string }) => void,
    ): void;
  };
}

type SaslMechanism = (this: SaslHost, args: string[], done: Done) => void;

const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** One AUTH command and the lines that follow it (RFC 4954). The mechanisms are those of smtp-server. */
class SaslExchange {
  readonly #host: SaslHost;
  readonly #mechanism: SaslMechanism;
  #answer: Reply = replies.fault;

  constructor(mechanism: Mechanism, check: CheckCredentials) {
    // The declared type of `this` is smtp-server's own connection; the mechanisms use only this part of it.
    this.#mechanism = sasl[`SASL_${mechanism}`] as unknown as SaslMechanism;
    this.#host = this.#makeHost(mechanism, check);
  }

  /** True while another line of the client is expected. */
  get active(): boolean {
    return this.#host._nextHandler !== false;
  }

  /** `initial` is the initial response, if any. */
  begin(initial: string | undefined): Promise<Reply> {
    if (initial !== undefined && !base64.test(initial) && initial !== '=') return Promise.resolve(this.#malformed());
    const args = initial === undefined ? [] : [initial];
    return this.#run((done) => this.#mechanism.call(this.#host, args, done));
  }

  continue(line: string): Promise<Reply> {
    const step = this.#host._nextHandler;
    this.#host._nextHandler = false;
    if (step === false || line === '*') return Promise.resolve(replies.authAborted);
    if (!base64.test(line)) return Promise.resolve(this.#malformed());
    return this.#run((done) => step(line, done));
  }

  #malformed(): Reply {
    this.#host._nextHandler = false;
    return replies.authMalformed;
  }

  #run(step: (done: Done) => void): Promise<Reply> {
    this.#answer = replies.fault;
    return new Promise((resolve) => {
      step(() => resolve(this.#answer));
    });
  }

  #makeHost(mechanism: Mechanism, check: CheckCredentials): SaslHost {
    let checked: Reply | undefined;
    return {
      id: '',
      name: '',
      session: {},
      _nextHandler: false,
      send: (code, text = '') => {
        this.#answer = code === 334 ? reply(334, null, text) : (checked ?? replies.authMalformed);
      },
      _transmissionType: () => 'ESMTPA',
      _server: {
        logger: { info: () => undefined },
        onAuth: (given, _session, callback) => {
          const { username, password, authzid } = given;
          const settle = (answer: Reply): void => {
            checked = answer;
            callback(null, answer.code === 235 ? { user: username } : {});
          };
          if (username.includes('\ufffd') || (authzid !== undefined && authzid !== '' && authzid !== username)) {
            // Invalid UTF-8, or an authorization identity of another user: refused and counted like a wrong password.
            void check({ mechanism, username: '', password: '' }).then(settle);
            return;
          }
          void check({ mechanism, username, password }).then(settle);
        },
      },
    };
  }
}
