import { crc32 } from 'node:zlib';
import { join } from 'node:path';
import type { RecoverOptions, Recovered } from '../../../core/contracts/relay-queue.js';
import type { Clock } from '../../../core/clock.js';
import { writeDurable } from '../../../core/disk/atomic.js';
import { type FileLayer, openRegularFile } from '../../../core/disk/file-layer.js';
import { folderSyncOf } from '../../../core/disk/folder.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem } from '../../../core/problem.js';
import type { Acceptance } from './acceptance.js';
import type { Bodies } from './bodies.js';
import { decodeBodyEnvelope, envelopeLineOf } from './body-envelope.js';
import type { Ledger } from './ledger.js';
import { uidOfQuarantined, type Quarantine } from './quarantine.js';
import type { StoredAcceptInput } from './stored-entry.js';
import { TimeSlice } from '../../../core/concurrency.js';
import { readAt } from './whole-file.js';

export interface RecoverInput {
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
  /** The envelope, where it does not stand in the file of the message. */
  readonly beside: Buffer | undefined;
}

/** Makes entries again from messages in quarantine whose envelope is known. What cannot be an entry stays where it is. */
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

/** A sentence when it cannot be an entry. */
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
