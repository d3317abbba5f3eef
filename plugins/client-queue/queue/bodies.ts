import { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import { join } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import { asStorageProblem, faultCode, isMissing, isTaken, unlessMissing } from '../../../core/disk/fault.js';
import { type FileLayer, openRegularFile } from '../../../core/disk/file-layer.js';
import { folderSyncOf, makeFolder } from '../../../core/disk/folder.js';
import { FileRemover } from '../../../core/spool/file-pool.js';
import type { LoggedMessage, LinkTarget, SpooledMessage } from '../../../core/spool/spool.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import { writeDurable } from '../../../core/disk/atomic.js';
import { encodeBodyEnvelope, envelopeSuffix } from './body-envelope.js';
import type { QueuedEntry } from './queued-entry.js';
import { FileStream } from './file-stream.js';
import { readWhole } from './whole-file.js';

export const shards: readonly string[] = '0123456789abcdef'.split('');
export const bodySuffix = '.eml';
const uidPattern = /^[0-9A-Za-z][0-9A-Za-z_-]{0,127}$/;
/** Larger messages are not given in one piece. */
const smallBytes = 128 * 1024;
/** A stop waits for removals for so long. */
const patienceMs = 1000;

const damaged = () => problem('not-found', 'The message is damaged.');

export interface BodiesInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly clock: Clock;
  readonly log: Log;
  /** Name of the delivery target whose finder knows the messages again. */
  readonly owner: string | undefined;
}

export interface PlacedBody {
  readonly placements: readonly LinkTarget[];
  /** Where what is sent begins in the file. */
  readonly traceOffset: number;
  readonly checksum: number | undefined;
}

/** The messages of the queue: each is a file that is written once, and removed when nobody needs it; many are delivered before they become one. */
export class Bodies {
  readonly #input: BodiesInput;
  readonly #reaper: FileRemover;
  /** Those that are no file yet: the log of the spool has them. */
  readonly #kept = new Map<string, LoggedMessage>();
  #until = Infinity;

  constructor(input: BodiesInput) {
    this.#input = input;
    this.#reaper = new FileRemover((path) => this.#remove(path));
  }

  async open(): Promise<void> {
    const { folder, files } = this.#input;
    const sync = folderSyncOf(files);
    for (const shard of shards) await makeFolder(join(folder, shard), files, sync);
  }

  /**
   * The message with its envelope: in front of it where it has a file, or will have one, that nobody shares; beside it otherwise.
   * @throws Problem `unavailable` when a dead process has left one, which is no entry: it goes to quarantine when the folder is looked through
   */
  async place(entry: NewEntry, message: SpooledMessage): Promise<PlacedBody> {
    const { uid } = entry;
    const placement = this.placement(uid);
    const placements = [placement];
    const { traceOffset, checksum } = message;
    const line = encodeBodyEnvelope(entry, traceOffset, checksum);
    try {
      const kept = await message.keepInLog?.(placement, () => this.#kept.delete(uid), line);
      if (kept !== undefined) {
        if (kept.content !== undefined) this.#kept.set(uid, kept);
        return { placements, traceOffset: line.length + traceOffset, checksum };
      }
      await writeDurable(this.#input.files, this.envelopePath(uid), [line]);
      try {
        await message.link(placements);
      } catch (error) {
        await this.removeEnvelope(uid);
        throw error;
      }
      return { placements, traceOffset, checksum };
    } catch (error) {
      if (isTaken(error)) throw problem('unavailable', { detail: 'What is left of it is in the way.', cause: error });
      throw asStorageProblem(error);
    }
  }

  envelopePath(uid: string): string {
    return `${this.path(uid).slice(0, -bodySuffix.length)}${envelopeSuffix}`;
  }

  async removeEnvelope(uid: string): Promise<void> {
    await this.#remove(this.envelopePath(uid));
  }

  placement(uid: string): LinkTarget {
    if (!uidPattern.test(uid)) throw problem('invalid', 'The uid of an entry is made of letters, digits and hyphens.');
    const { folder, owner } = this.#input;
    const name = `${uid}${bodySuffix}`;
    return { folder: join(folder, shardOf(uid)), name, ...(owner !== undefined && { owner }) };
  }

  path(uid: string): string {
    const { folder, name } = this.placement(uid);
    return join(folder, name);
  }

  uidOf(name: string): string {
    return name.slice(0, -bodySuffix.length);
  }

  /** Where the message of that file name is; undefined when it is not there. */
  async locate(name: string): Promise<string | undefined> {
    const path = this.path(this.uidOf(name));
    const there = await unlessMissing(this.#input.files.lstat(path));
    return there?.isFile() === true ? path : undefined;
  }

  /** What is wrong with the message; undefined when it is there and of its size. */
  async complaint(entry: QueuedEntry): Promise<'missing' | 'damaged' | undefined> {
    if (this.#kept.has(entry.uid)) return undefined;
    try {
      const found = await this.#input.files.lstat(this.path(entry.uid));
      return found.isFile() && found.size === entry.traceOffset + entry.size ? undefined : 'damaged';
    } catch (error) {
      if (isMissing(error)) return 'missing';
      throw error;
    }
  }

  /** What is sent, in one piece; undefined for a large message. @throws Problem `not-found` */
  async bytes(entry: QueuedEntry): Promise<Buffer | undefined> {
    const kept = this.#kept.get(entry.uid)?.content;
    if (kept !== undefined) return kept.subarray(entry.traceOffset);
    if (entry.size > smallBytes) return undefined;
    return this.#found(async () => {
      const bytes = await readWhole(this.#input.files, this.path(entry.uid), entry.traceOffset);
      if (bytes.length !== entry.size) throw damaged();
      if (entry.checksum !== undefined && crc32(bytes) !== entry.checksum) throw damaged();
      return bytes;
    });
  }

  /** @throws Problem `not-found` */
  async stream(entry: QueuedEntry): Promise<Readable> {
    const bytes = await this.bytes(entry);
    if (bytes !== undefined) return Readable.from([bytes], { objectMode: false });
    return this.#found(async () => {
      if ((await this.complaint(entry)) !== undefined) throw damaged();
      const fd = await openRegularFile(this.path(entry.uid), this.#input.files);
      const { traceOffset, size, checksum } = entry;
      return new FileStream(this.#input.files, { fd, from: traceOffset, to: traceOffset + size, damaged, checksum });
    });
  }

  async #found<T>(read: () => Promise<T>): Promise<T> {
    try {
      return await read();
    } catch (error) {
      if (isMissing(error)) throw problem('not-found', { detail: 'The message is not there any more.', cause: error });
      if (faultCode(error) === 'EFTYPE') throw damaged();
      throw asStorageProblem(error);
    }
  }

  /** In the background. */
  remove(uid: string): void {
    const kept = this.#kept.get(uid);
    this.#kept.delete(uid);
    if (kept?.drop() === true) return;
    void this.#reaper.add(this.path(uid));
    void this.#reaper.add(this.envelopePath(uid));
  }

  async #remove(path: string): Promise<void> {
    const { files, log, clock } = this.#input;
    if (clock.monotonic() > this.#until) return;
    try {
      await files.unlink(path);
    } catch (error) {
      if (!isMissing(error))
        log.warn({ err: error }, 'a message of the queue could not be removed; the next start will');
    }
  }

  /** What is to be removed goes, but a stop does not wait for very much: the next start removes the rest. */
  close(): Promise<void> {
    this.#until = this.#input.clock.monotonic() + patienceMs;
    return this.#reaper.idle();
  }
}

/**
 * Messages that come within the same second lie in the same folder, and so share its fsync; those of a day lie in all of them.
 * The time stands in front in the ids of the server.
 */
function shardOf(uid: string): string {
  return shards[crc32(uid.slice(0, 8)) % shards.length] ?? '0';
}
