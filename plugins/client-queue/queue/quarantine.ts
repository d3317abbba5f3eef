import { basename, join } from 'node:path';
import type { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import { TimeSlice } from '../../../core/concurrency.js';
import type { Quarantined, Recovered, RecoverOptions } from '../../../core/contracts/relay-queue-store.js';
import { writeDurable, writeFileAtomic } from '../../../core/disk/atomic.js';
import { faultCode, isMissing } from '../../../core/disk/fault.js';
import { type FileLayer, openRegularFile } from '../../../core/disk/file-layer.js';
import { folderSyncOf, makeFolder } from '../../../core/disk/folder.js';
import { uniqueId } from '../../../core/disk/id.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { Acceptance } from './acceptance.js';
import { type Bodies, decodeBodyEnvelope, envelopeLineOf, FileStream, readAt, readWhole } from './bodies.js';
import type { StoredAcceptInput } from './stored-entry.js';
import type { Ledger } from './ledger.js';

interface QuarantineInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly clock: Clock;
  readonly log: Log;
}

const Reason = z.object({
  reason: z.string(),
  at: z.number(),
  /** The envelope file of a message. */
  envelope: z.exactOptional(z.string()),
});
const reasonSuffix = '.reason';
const noReason = 'Nobody has written down why.';
/** Maximum number of listed files; the rest is counted. */
const maxListed = 1000;

/** Younger files are not removed to make room. Milliseconds. */
const minKeptMs = 86_400_000;
const messageName = /^[0-9a-z]{20}-(.+)\.eml$/;

/** The uid of the entry of a quarantined message. */
function uidOfQuarantined(name: string): string | undefined {
  return messageName.exec(name)?.[1];
}

/** The folder of unreadable files, each with a note beside it that says why. An operator or its age removes a file. */
export class Quarantine {
  readonly #input: QuarantineInput;
  #count = 0;

  constructor(input: QuarantineInput) {
    this.#input = input;
  }

  /** Number of files in it, as last counted. */
  get count(): number {
    return this.#count;
  }

  /** Counts the files in the folder, if it exists. */
  async open(): Promise<void> {
    this.#count = (await this.names()).length;
  }

  path(name: string): string {
    return join(this.#input.folder, name);
  }

  /** The envelope file of a message. */
  async envelopeOf(name: string): Promise<Buffer | undefined> {
    const { envelope } = await this.#reasonOf(name);
    return envelope === undefined ? undefined : Buffer.from(envelope);
  }

  /** Called after a file was moved out again. */
  async gone(name: string): Promise<void> {
    await this.#removeReason(name);
    this.#count = Math.max(0, this.#count - 1);
  }

  /** Removes files that are too old, then the oldest until the size fits. */
  async trim({
    now,
    maxAgeMs,
    maxBytes,
  }: {
    readonly now: number;
    readonly maxAgeMs: number;
    readonly maxBytes: number;
  }): Promise<void> {
    const { files, log } = this.#input;
    const found: { readonly name: string; readonly size: number; readonly at: number }[] = [];
    // Names begin with the time.
    for (const name of await this.names()) {
      const there = await files.lstat(this.path(name)).catch(() => undefined);
      if (there?.isFile() !== true) continue;
      const { at = there.ctimeMs } = await this.#reasonOf(name);
      found.push({ name, size: there.size, at });
    }
    let bytes = found.reduce((sum, { size }) => sum + size, 0);
    for (const { name, size, at } of found) {
      const isTooMuch = bytes > maxBytes && at < now - minKeptMs;
      if (at >= now - maxAgeMs && !isTooMuch) continue;
      bytes -= size;
      await files.unlink(this.path(name));
      await this.gone(name);
      log.warn({ name, size }, 'a file was removed from the quarantine of the queue: it was there for too long');
    }
    this.#count = (await this.names()).length;
  }

  /** Moves a file, folder or link to quarantine. Never rejects: what cannot be moved stays, and is logged. */
  async move(path: string, reason: string, envelope?: string): Promise<boolean> {
    const { folder, files } = this.#input;
    const name = `${uniqueId()}-${basename(path)}`.slice(0, 200);
    const why = { reason, ...(envelope !== undefined && envelope !== '' && { envelope }) };
    return this.#keep(name, why, async () => {
      await files.rename(path, join(folder, name));
      await folderSyncOf(files).sync(folder);
    });
  }

  /** Stores bytes from a damaged file. Never rejects. */
  save(what: string, bytes: Buffer, reason: string): Promise<boolean> {
    const { folder, files } = this.#input;
    const name = `${uniqueId()}-${what}`;
    return this.#keep(name, { reason }, () => writeDurable(files, join(folder, name), [bytes]));
  }

  async #keep(
    name: string,
    why: { readonly reason: string; readonly envelope?: string },
    keep: () => Promise<void>,
  ): Promise<boolean> {
    const { folder, files, clock, log } = this.#input;
    const { reason } = why;
    try {
      await makeFolder(folder, files);
      const text = `${JSON.stringify({ ...why, at: clock.now() })}\n`;
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
    const names = await this.names();
    this.#count = names.length;
    const found: Quarantined[] = [];
    for (const name of names.slice(0, maxListed)) found.push(await this.#look(name));
    return found;
  }

  /** @throws Problem `not-found`; `conflict` for anything but a regular file */
  async read(name: string): Promise<Readable> {
    const { files } = this.#input;
    const { path, size } = await this.#plainFile(name);
    // Skips the envelope, which is not part of the message.
    const { length } = await envelopeLineOf(files, path);
    const fd = await openRegularFile(path, files);
    return new FileStream(files, { fd, from: length, to: size });
  }

  /** Durable when it resolves. @throws as `read` */
  async discard(name: string): Promise<void> {
    const { folder, files } = this.#input;
    const { path } = await this.#plainFile(name);
    await files.unlink(path);
    await this.gone(name);
    await folderSyncOf(files).sync(folder);
  }

  async #removeReason(name: string): Promise<void> {
    const { files, log } = this.#input;
    await files.unlink(`${this.path(name)}${reasonSuffix}`).catch((error: unknown) => {
      if (!isMissing(error)) log.warn({ err: error, name }, 'the reason beside a removed file stays');
    });
  }

  async #plainFile(name: string): Promise<{ readonly path: string; readonly size: number }> {
    const { folder, files } = this.#input;
    if (!(await this.names()).includes(name))
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
    const uid = uidOfQuarantined(name);
    const known = { name, reason, size: found?.size ?? 0, at: at ?? found?.ctimeMs ?? 0 };
    return uid === undefined ? known : { ...known, uid };
  }

  async #reasonOf(
    name: string,
  ): Promise<{ readonly reason: string; readonly at?: number; readonly envelope?: string }> {
    const { folder, files } = this.#input;
    try {
      const bytes = await readWhole(files, join(folder, `${name}${reasonSuffix}`));
      return Reason.parse(JSON.parse(bytes.toString('utf8')));
    } catch {
      return { reason: noReason };
    }
  }

  /** Oldest first. */
  async names(): Promise<readonly string[]> {
    const { folder, files } = this.#input;
    try {
      const names = await files.readdir(folder);
      return names.filter((name) => !name.endsWith(reasonSuffix) && !name.startsWith('.')).sort();
    } catch (error) {
      // A file in place of the folder can store nothing; each failure is logged.
      if (isMissing(error) || faultCode(error) === 'ENOTDIR') return [];
      throw error;
    }
  }
}

interface RecoverInput {
  readonly files: FileLayer;
  readonly clock: Clock;
  readonly log: Log;
  readonly quarantine: Quarantine;
  readonly bodies: Bodies;
  readonly ledger: Ledger;
  readonly acceptance: Acceptance;
}

const pieceBytes = 256 * 1024;

/** A message in quarantine whose envelope is known. */
interface Found {
  readonly accepted: StoredAcceptInput;
  /** The envelope, unless it is in the message file. */
  readonly beside: Buffer | undefined;
}

/** Recreates entries from quarantined messages with a known envelope. Others stay in quarantine. */
export async function recover(input: RecoverInput, { names, dryRun = false }: RecoverOptions): Promise<Recovered> {
  const { quarantine, log } = input;
  const uids: string[] = [];
  const left: { name: string; reason: string }[] = [];
  const slice = new TimeSlice();
  const all = await quarantine.names();
  for (const name of names ?? all) {
    const found = all.includes(name) ? await look(input, name) : 'There is no such file in quarantine.';
    if (typeof found === 'string') left.push({ name, reason: found });
    else {
      try {
        if (!dryRun) await adopt(input, name, found);
        uids.push(found.accepted.envelope.uid);
      } catch (error) {
        log.warn({ err: error, name }, 'a message in quarantine could not be recovered');
        left.push({ name, reason: isProblem(error) ? error.message : 'It cannot be recovered now; the log says why.' });
      }
    }
    await slice.yieldIfDue();
  }
  if (!dryRun && uids.length > 0) log.info({ uids: uids.slice(0, 100) }, 'messages in quarantine are entries again');
  return { recovered: uids.length, uids, left };
}

/** Returns a sentence when it cannot become an entry. */
async function look(input: RecoverInput, name: string): Promise<Found | string> {
  const { files, quarantine, ledger, acceptance, clock } = input;
  const path = quarantine.path(name);
  if (uidOfQuarantined(name) === undefined) return 'It is no message of the queue.';
  if (!(await files.lstat(path)).isFile()) return 'It is no plain file.';
  const inside = await envelopeLineOf(files, path);
  const beside = inside.length > 0 ? undefined : await quarantine.envelopeOf(name);
  const body = decodeBodyEnvelope(beside ?? inside);
  if (body === undefined) return 'Its envelope is not known. Queue it by hand, on its page.';
  const { envelope, checksum } = body;
  if (ledger.find(envelope.uid) !== undefined || acceptance.isPreparing(envelope.uid)) return 'It has an entry.';
  const traceOffset = inside.length + body.traceOffset;
  const content = await contentOf(files, path, traceOffset);
  if (content.size !== envelope.size || (checksum !== undefined && content.checksum !== checksum)) {
    return 'The message is damaged.';
  }
  const now = clock.now();
  const accepted = { envelope: { ...envelope, nextAttempt: now }, traceOffset };
  return { accepted: { ...accepted, ...(checksum !== undefined && { checksum }) }, beside };
}

async function adopt(
  { files, quarantine, bodies, acceptance }: RecoverInput,
  name: string,
  found: Found,
): Promise<void> {
  const { uid } = found.accepted.envelope;
  const { folder, name: file } = bodies.placement(uid);
  const place = async (): Promise<void> => {
    if (await files.exists(join(folder, file))) throw new Error('there is a message in its place');
    if (found.beside !== undefined) await writeDurable(files, bodies.envelopePath(uid), [found.beside]);
    await files.rename(quarantine.path(name), join(folder, file));
    await folderSyncOf(files).sync(folder);
  };
  const takeBack = async (): Promise<void> => {
    await files.rename(join(folder, file), quarantine.path(name));
    await bodies.removeEnvelope(uid);
  };
  await acceptance.adopt(found.accepted, place, takeBack);
  await quarantine.gone(name);
}

async function contentOf(
  files: FileLayer,
  path: string,
  from: number,
): Promise<{ readonly size: number; readonly checksum: number }> {
  const fd = await openRegularFile(path, files);
  try {
    let checksum = 0;
    for (let at = from; ;) {
      const piece = await readAt(files, fd, at, pieceBytes);
      if (piece.length === 0) return { size: at - from, checksum };
      checksum = crc32(piece, checksum);
      at += piece.length;
    }
  } finally {
    await files.close(fd);
  }
}
