import type { FileLayer } from '../disk/file-layer.js';
import { pathOf } from './restoration.js';
import type { KeptMessage, Placement } from './spool.js';

export interface LoggedMessageInput {
  readonly placement: Placement;
  readonly content: Buffer;
  /** Number of its record. */
  readonly number: number;
  /** Called once, when the log need not think of it any more: it is in its place, or nobody wants it. */
  readonly settled: (message: LoggedMessage) => void;
  /** Called when it is in its place. */
  readonly stored: () => void;
}

/** A message that is durable by its record alone. Its file is written when the record has to go, and is still wanted. */
export class LoggedMessage implements KeptMessage {
  readonly number: number;
  readonly size: number;
  readonly #input: LoggedMessageInput;
  #content: Buffer | undefined;
  #state: 'kept' | 'storing' | 'stored' | 'dropped' = 'kept';

  constructor(input: LoggedMessageInput) {
    this.#input = input;
    this.number = input.number;
    this.size = input.content.length;
    this.#content = input.content;
  }

  get content(): Buffer | undefined {
    return this.#content;
  }

  drop(): boolean {
    if (this.#state === 'stored') return false;
    const isStoring = this.#state === 'storing';
    this.#content = undefined;
    if (this.#state !== 'dropped' && !isStoring) this.#input.settled(this);
    this.#state = 'dropped';
    return true;
  }

  /** Writes the file by calls that block, not durable yet. Rejects as the system says; then it is as it was. */
  async store(files: FileLayer, freshPath: string): Promise<void> {
    const content = this.#content;
    if (content === undefined || this.#state !== 'kept') return;
    this.#state = 'storing';
    const path = pathOf(this.#input.placement);
    try {
      await files.createNow(freshPath, [content]);
      await files.renameNow(freshPath, path);
    } catch (error) {
      await files.unlink(freshPath).catch(() => undefined);
      if (this.#isDropped()) return this.#input.settled(this);
      this.#state = 'kept';
      throw error;
    }
    try {
      if (this.#isDropped()) await files.unlink(path);
      else {
        this.#state = 'stored';
        this.#content = undefined;
        this.#input.stored();
      }
    } finally {
      this.#input.settled(this);
    }
  }

  /** Whoever does not want it any more may have said so meanwhile. */
  #isDropped(): boolean {
    return this.#state === 'dropped';
  }
}
