import type { Clock } from '../../core/clock.js';
import { sha256Of } from '../../core/config/layer-folder.js';
import type { SkippedFile } from '../../core/contracts/configuration-source.js';
import { isProblem, type Problem } from '../../core/problem.js';
import { redactText } from '../../core/log/redact.js';
import type { PulledFile } from './sync/pulled-layers.js';

/** Until the same files are offered again by themselves, in milliseconds. */
const againAfterMs = 600_000;

interface Refusal {
  readonly version: string;
  readonly atMs: number;
  readonly error: Problem;
}

/**
 * Remembers which files the server has refused. They are offered again when somebody asks, or after a while, for then something
 * else may have changed; not at every look, which would fill the logs.
 */
export class Offer {
  readonly #clock: Pick<Clock, 'monotonic'>;
  #refusal: Refusal | undefined;

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock;
  }

  forget(): void {
    this.#refusal = undefined;
  }

  /** Rejects as `offer` does, or as it did when these files were refused a short time ago. */
  async make<T>(files: readonly PulledFile[], unasked: boolean, offer: () => Promise<T>): Promise<T> {
    const version = sha256Of(JSON.stringify(files.map(({ name, sha256 }) => [name, sha256])));
    const nowMs = this.#clock.monotonic();
    const last = this.#refusal;
    if (unasked && last?.version === version && nowMs - last.atMs < againAfterMs) throw last.error;
    try {
      const outcome = await offer();
      this.#refusal = undefined;
      return outcome;
    } catch (error) {
      if (isProblem(error) && error.problem === 'invalid') this.#refusal = { version, atMs: nowMs, error };
      throw error;
    }
  }

  /** The files that are not in force because of that, each with its reason. */
  refused(files: readonly PulledFile[]): readonly SkippedFile[] {
    const errors = this.#refusal?.error.details.errors;
    if (errors === undefined) return [];
    return files.map(({ name }) => {
      const message = errors.find((error) => error.message.startsWith(`sync:${name}:`))?.message;
      return { file: name, why: redactText(message ?? 'waits, because the configuration is refused') };
    });
  }
}
