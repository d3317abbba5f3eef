import { constants } from 'node:fs';
import { basename, join } from 'node:path';
import type { Readable } from 'node:stream';
import { z } from 'zod';
import type { Quarantined } from '../../../core/contracts/relay-queue.js';
import type { Clock } from '../../../core/clock.js';
import { writeDurable, writeFileAtomic } from '../../../core/disk/atomic.js';
import { faultCode, isMissing } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { folderSyncOf, makeFolder } from '../../../core/disk/folder.js';
import { uniqueId } from '../../../core/disk/id.js';
import { FileStream } from './file-stream.js';
import { readWhole } from './whole-file.js';
import type { Log } from '../../../core/log.js';
import { problem } from '../../../core/problem.js';

export interface QuarantineInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly clock: Clock;
  readonly log: Log;
}

const Reason = z.object({ reason: z.string(), at: z.number() });
const reasonSuffix = '.reason';
const noReason = 'Nobody has written down why.';
/** So many are listed; the rest is counted. */
const mostListed = 1000;

/** The folder of what cannot be understood: each file with another beside it that says why. Only an operator removes something from it. */
export class Quarantine {
  readonly #input: QuarantineInput;
  #count = 0;

  constructor(input: QuarantineInput) {
    this.#input = input;
  }

  /** How many things lie in it, as far as is known. */
  get count(): number {
    return this.#count;
  }

  /** Looks into the folder, if there is one. */
  async open(): Promise<void> {
    this.#count = (await this.#names()).length;
  }

  /** Moves a file, folder or link out of the way. Never rejects: what cannot be moved stays where it is, and the log says so. */
  async move(path: string, reason: string): Promise<boolean> {
    const { folder, files } = this.#input;
    const name = `${uniqueId()}-${basename(path)}`.slice(0, 200);
    return this.#keep(name, reason, async () => {
      await files.rename(path, join(folder, name));
      await folderSyncOf(files).sync(folder);
    });
  }

  /** Keeps bytes that were found in a file of ours. Never rejects. */
  save(what: string, bytes: Buffer, reason: string): Promise<boolean> {
    const { folder, files } = this.#input;
    const name = `${uniqueId()}-${what}`;
    return this.#keep(name, reason, () => writeDurable(files, join(folder, name), [bytes]));
  }

  async #keep(name: string, reason: string, keep: () => Promise<void>): Promise<boolean> {
    const { folder, files, clock, log } = this.#input;
    try {
      await makeFolder(folder, files);
      const text = `${JSON.stringify({ reason, at: clock.now() })}\n`;
      await writeFileAtomic(join(folder, `${name}${reasonSuffix}`), text, { files });
      await keep();
    } catch (error) {
      log.error({ err: error, name, reason }, 'something in the queue could not be put into quarantine');
      return false;
    }
    this.#count += 1;
    log.error({ name, reason }, 'something in the queue was put into quarantine');
    return true;
  }

  async list(): Promise<readonly Quarantined[]> {
    const names = await this.#names();
    this.#count = names.length;
    const found: Quarantined[] = [];
    for (const name of names.slice(0, mostListed)) found.push(await this.#look(name));
    return found;
  }

  /** @throws Problem `not-found`, `conflict` for what is no plain file */
  async read(name: string): Promise<Readable> {
    const { files } = this.#input;
    const { path, size } = await this.#plainFile(name);
    // Whatever has come into its place since is not followed.
    const fd = await files.open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
    return new FileStream(files, { fd, from: 0, to: size });
  }

  /** Durable when it resolves. @throws as `read` */
  async discard(name: string): Promise<void> {
    const { folder, files, log } = this.#input;
    const { path } = await this.#plainFile(name);
    await files.unlink(path);
    await files.unlink(`${path}${reasonSuffix}`).catch((error: unknown) => {
      if (!isMissing(error)) log.warn({ err: error, name }, 'the reason beside a removed file stays');
    });
    await folderSyncOf(files).sync(folder);
    this.#count = Math.max(0, this.#count - 1);
  }

  async #plainFile(name: string): Promise<{ readonly path: string; readonly size: number }> {
    const { folder, files } = this.#input;
    if (!(await this.#names()).includes(name))
      throw problem('not-found', 'There is no such thing in the quarantine of the queue.');
    const path = join(folder, name);
    const found = await files.lstat(path);
    if (!found.isFile()) throw problem('conflict', 'It is no plain file: look at it on the disk of the server.');
    return { path, size: found.size };
  }

  async #look(name: string): Promise<Quarantined> {
    const { folder, files } = this.#input;
    const { reason, at } = await this.#reasonOf(name);
    const found = await files.lstat(join(folder, name)).catch(() => undefined);
    return { name, reason, size: found?.size ?? 0, at: at ?? found?.ctimeMs ?? 0 };
  }

  async #reasonOf(name: string): Promise<{ readonly reason: string; readonly at?: number }> {
    const { folder, files } = this.#input;
    try {
      const bytes = await readWhole(files, join(folder, `${name}${reasonSuffix}`));
      return Reason.parse(JSON.parse(bytes.toString('utf8')));
    } catch {
      return { reason: noReason };
    }
  }

  async #names(): Promise<readonly string[]> {
    const { folder, files } = this.#input;
    try {
      const names = await files.readdir(folder);
      return names.filter((name) => !name.endsWith(reasonSuffix) && !name.startsWith('.')).sort();
    } catch (error) {
      // A file in its place takes nothing in, and the log says so of each thing.
      if (isMissing(error) || faultCode(error) === 'ENOTDIR') return [];
      throw error;
    }
  }
}
