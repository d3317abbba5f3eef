import sasl from 'smtp-server/lib/sasl.js';
import { replies } from '../protocol/replies.js';
import { reply, type Reply } from '../protocol/reply.js';

export interface Credentials {
  readonly mechanism: 'PLAIN' | 'LOGIN';
  readonly username: string;
  readonly password: string;
}

/** Resolves with the answer to the client, a 235 or a refusal. */
export type CheckCredentials = (credentials: Credentials) => Promise<Reply>;

export const mechanisms = ['PLAIN', 'LOGIN'] as const;
type Mechanism = (typeof mechanisms)[number];

type Done = () => void;
type Step = (line: string, done: Done) => void;

/** What smtp-server's mechanisms expect of the connection they run on. */
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

/** One AUTH command and the lines that follow it (RFC 4954). The mechanisms are smtp-server's, on a small host. */
export class SaslExchange {
  readonly #host: SaslHost;
  readonly #mechanism: SaslMechanism;
  #answer: Reply = replies.fault;

  constructor(mechanism: Mechanism, check: CheckCredentials) {
    // The declared type of `this` is smtp-server's own connection, of which the mechanisms use only this much.
    this.#mechanism = sasl[`SASL_${mechanism}`] as unknown as SaslMechanism;
    this.#host = this.#makeHost(mechanism, check);
  }

  /** True while another line of the client is awaited. */
  get active(): boolean {
    return this.#host._nextHandler !== false;
  }

  /** `initial` is the initial response, if there was one. */
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
            // Not valid UTF-8, or somebody who wants to act for somebody else: wrong, and counted like a wrong password.
            void check({ mechanism, username: '', password: '' }).then(settle);
            return;
          }
          void check({ mechanism, username, password }).then(settle);
        },
      },
    };
  }
}
