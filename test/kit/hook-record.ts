import type { Address } from '../../core/mime/address.js';
import type { Stage } from '../../core/pipeline/verdict.js';
import type { HookAnswer, HookObserver } from '../../core/pipeline/hook-runner.js';
import type { SmtpSession } from '../../core/pipeline/transaction.js';

/** What hooks have answered and no reply was read for. */
export class HookRecord {
  #waiting: HookAnswer[] = [];

  readonly observe: HookObserver = (answer) => {
    if ('attempt' in answer.input) return;
    const session = sessionOf(answer);
    if (session.internal !== true && session.dryRun !== true) this.#waiting.push(answer);
  };

  /** Takes what the hooks of one command of that client have said: of the first of its stage that was about that address. */
  takeCommand(port: number, stage: Stage, about?: string | null): readonly HookAnswer[] {
    const first = this.#waiting.find(
      (answer) => isOf(answer, port) && answer.stage === stage && (about === undefined || subjectOf(answer) === about),
    );
    return first === undefined ? [] : this.#take((answer) => answer.input === first.input);
  }

  /** The same for a message: everything that is left of that client. */
  takeRest(port: number): readonly HookAnswer[] {
    return this.#take((answer) => isOf(answer, port));
  }

  #take(wanted: (answer: HookAnswer) => boolean): readonly HookAnswer[] {
    const taken = this.#waiting.filter(wanted);
    this.#waiting = this.#waiting.filter((answer) => !taken.includes(answer));
    return taken;
  }
}

/** Of the stages of a session. */
function sessionOf({ input }: HookAnswer): SmtpSession {
  if ('attempt' in input) throw new Error('an attempt has no session');
  return 'transaction' in input ? input.transaction.session : input.session;
}

const isOf = (answer: HookAnswer, port: number): boolean => sessionOf(answer).remote.port === port;

/** The path that MAIL or RCPT named; null for `<>`. */
function subjectOf({ input }: HookAnswer): string | null | undefined {
  const written = (address: Address | null): string | null => address?.address ?? null;
  if ('address' in input) return written(input.address);
  return 'transaction' in input ? written(input.transaction.reversePath) : undefined;
}
