import { constants } from 'node:fs';
import { BlockingCost } from './blocking-cost.js';
import type { FileLayer } from '../disk/file-layer.js';
import { ReadyFiles, type ReadyFile } from './ready-files.js';

const { O_CREAT, O_DSYNC, O_EXCL, O_WRONLY } = constants;

/**
 * What becomes of the bytes: `durable` files answer a write when all that is needed to read it again is on the disk (O_DSYNC, open(2)),
 * which saves an fsync and the thread that waits for it.
 */
const flags = {
  plain: O_CREAT | O_EXCL | O_WRONLY,
  durable: O_CREAT | O_EXCL | O_WRONLY | O_DSYNC,
} as const;

export type NewFileKind = keyof typeof flags;

export interface NewFilesInput {
  readonly files: FileLayer;
  /** What nearly all of them are. */
  readonly kind: NewFileKind;
  /** Several messages are on their way to their places. */
  readonly crowded: () => boolean;
  /** A path in the spool that nobody has had. */
  readonly freshPath: () => string;
}

/** Makes the files of the spool, the way that holds up the fewest: at once by a call that blocks, by a thread, or by a thread ahead of the need. */
export class NewFiles {
  readonly #input: NewFilesInput;
  readonly #ready: ReadyFiles;
  readonly #cost = new BlockingCost();

  constructor(input: NewFilesInput) {
    this.#input = input;
    this.#ready = new ReadyFiles({ ...input, flags: flags[input.kind] });
  }

  /** An empty file, open for writing; `path` when it is to have that name. Throws what the system says. */
  async make(kind: NewFileKind, path?: string): Promise<ReadyFile> {
    const { files, crowded, freshPath } = this.#input;
    const isDear = this.#cost.isDear();
    const isBusy = crowded();
    const mayBeReady = path === undefined && kind === this.#input.kind;
    const ready = mayBeReady && (isBusy || isDear) ? this.#ready.take() : undefined;
    if (ready !== undefined) return ready;
    const own = path ?? freshPath();
    // What makes files durable holds up whoever creates one.
    const mayBlock = !isDear && (kind === 'plain' || !isBusy);
    const open = (): Promise<number> => files[mayBlock ? 'openNow' : 'open'](own, flags[kind], 0o600);
    return { path: own, fd: await (mayBlock ? this.#cost.measure(open) : open()) };
  }

  close(): Promise<void> {
    return this.#ready.close();
  }
}
