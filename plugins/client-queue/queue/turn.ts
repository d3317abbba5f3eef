import { setImmediate } from 'node:timers/promises';
import { performance } from 'node:perf_hooks';

/** Long work gives everybody else a turn when it has had this much time. Milliseconds. */
const sliceMs = 8;
/** The clock is looked at once in so many steps. */
const stride = 128;

/** Paces long work: `await` what `step` gives, if it gives anything. */
export class Turn {
  #steps = 0;
  #began = performance.now();

  step(): Promise<void> | undefined {
    this.#steps += 1;
    return this.#steps % stride === 0 ? this.rest() : undefined;
  }

  /** For larger steps. */
  rest(): Promise<void> | undefined {
    return performance.now() - this.#began < sliceMs ? undefined : this.#rest();
  }

  async #rest(): Promise<void> {
    await setImmediate();
    this.#began = performance.now();
  }
}
