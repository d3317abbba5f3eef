import { asciiUpperCase } from '../../mime/character.js';
import { printable } from '../../text/format.js';
import type { ListenerGround } from './listener-ground.js';
import { replies } from '../protocol/replies.js';
import type { Reply } from '../protocol/reply.js';
import { mechanisms, SaslExchange, type Credentials } from './sasl-exchange.js';
import type { SessionState } from './session-state.js';

/** Characters of a name that may be anything. */
const maxLoggedName = 100;

/** AUTH of one session (RFC 4954): who may try, how often, and who has signed in. */
export class SignIn {
  readonly #ground: ListenerGround;
  readonly #session: SessionState;
  #exchange: SaslExchange | undefined;
  #failures = 0;

  constructor(ground: ListenerGround, session: SessionState) {
    this.#ground = ground;
    this.#session = session;
  }

  get active(): boolean {
    return this.#exchange?.active === true;
  }

  /** This listener takes mail only from those who have signed in. */
  get required(): boolean {
    return this.#ground.listener.mode === 'submission';
  }

  /** AUTH may be used now: under TLS, or where the configuration lets passwords pass in the clear. */
  get offered(): boolean {
    const encrypted = this.#session.tls !== undefined;
    return this.required && (encrypted || this.#ground.listener.allowPlaintextAuth);
  }

  begin(argument: string): Reply | Promise<Reply> {
    if (this.#session.user !== undefined) return replies.authAlready;
    if (!this.offered) return replies.encryptionForAuth;
    const [name = '', initial, ...more] = argument.split(/ +/);
    const mechanism = mechanisms.find((known) => known === asciiUpperCase(name));
    if (mechanism === undefined) return name === '' ? replies.badArguments : replies.authUnknown;
    if (more.length > 0) return replies.badArguments;
    if (this.#ground.throttle.retryAfter(this.#session.remote.address) > 0) {
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

  /** While the client was asked for its credentials, others may have brought its address over the limit. */
  async #check(credentials: Credentials): Promise<Reply> {
    const { throttle } = this.#ground;
    const failures = this.#failures;
    const reply = await throttle.attempt(this.#session.remote.address, () => this.#decide(credentials));
    if (reply === undefined) return replies.authLater;
    return this.#failures === failures ? reply : this.#penalise(reply);
  }

  async #decide(credentials: Credentials): Promise<Reply> {
    const { pipeline, meter, log } = this.#ground;
    const session = this.#session;
    const chain = pipeline.snapshot();
    const decision = await chain.decide('auth', { session, ...credentials });
    if (decision.outcome === 'pass' && decision.user !== undefined) {
      session.user = decision.user;
      meter.signedIn('accepted');
      const { id, remote, user } = session;
      log.info({ session: id, remote: remote.address, user: user.username }, 'signed in');
      return replies.authDone;
    }
    if (decision.outcome === 'refuse' && decision.reply.code < 500) {
      meter.signedIn('deferred');
      return decision.reply;
    }
    meter.signedIn('refused');
    const reply = decision.outcome === 'refuse' ? decision.reply : replies.authFailed;
    this.#count(credentials.username);
    chain.emit('rejected', {
      session,
      stage: 'auth',
      code: reply.code,
      status: reply.status ?? '5.7.8',
      text: reply.lines.join(' '),
    });
    return reply;
  }

  #count(username: string): void {
    const { throttle, log } = this.#ground;
    const { id, remote } = this.#session;
    this.#failures += 1;
    const user = printable(username.slice(0, maxLoggedName));
    log.info({ session: id, remote: remote.address, user, failures: this.#failures }, 'sign-in refused');
    if (!throttle.record(remote.address)) return;
    const seconds = throttle.retryAfter(remote.address);
    log.warn({ session: id, remote: remote.address, seconds }, 'too many wrong passwords: the address has to wait');
  }

  async #penalise(reply: Reply): Promise<Reply> {
    const { limits } = this.#ground.settings();
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
