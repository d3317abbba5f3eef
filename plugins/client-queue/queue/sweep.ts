import { join } from 'node:path';
import { isMissing } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import type { Log } from '../../../core/log.js';
import { bodySuffix, shards, type Bodies } from './bodies.js';
import type { Quarantine } from './quarantine.js';
import type { QueuedEntry } from './queued-entry.js';
import { Turn } from './turn.js';
import { readAt } from './whole-file.js';

export interface SweepInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly log: Log;
  readonly bodies: Bodies;
  readonly quarantine: Quarantine;
  readonly find: (uid: string) => QueuedEntry | undefined;
  /** Messages that are being accepted at this moment. */
  readonly isPreparing: (uid: string) => boolean;
  /** Nothing of snapshot and journal was lost. */
  readonly whole: boolean;
  /** What is older has been looked at before. */
  readonly sweptAt: number;
}

export interface Swept {
  /** Entries whose message is not what it should be. */
  readonly complaints: readonly { readonly entry: QueuedEntry; readonly complaint: 'missing' | 'damaged' }[];
}

const unknown = 'No entry of the queue belongs to it: the journal of the queue was damaged or changed.';
const foreign = 'It was in the folder of the queue, and is none of its files.';
const firstField = Buffer.from('Return-Path: ');
const damaged = 'The message is not of the size that its entry says.';

/** Looks at every message once: what has no entry, and what an entry lacks. */
export async function sweep(input: SweepInput, open: Iterable<QueuedEntry>): Promise<Swept> {
  const turn = new Turn();
  for (const shard of shards) {
    const folder = join(input.folder, shard);
    for (const name of await input.files.readdir(folder)) {
      await lookAt(input, folder, name);
      await turn.step();
    }
  }
  const complaints: { readonly entry: QueuedEntry; readonly complaint: 'missing' | 'damaged' }[] = [];
  for (const entry of open) {
    const complaint = await input.bodies.complaint(entry);
    if (complaint !== undefined && entry.finishedAt === null) {
      complaints.push({ entry, complaint });
      if (complaint === 'damaged') await input.quarantine.move(input.bodies.path(entry.uid), damaged);
    }
    await turn.step();
  }
  return { complaints };
}

async function lookAt(input: SweepInput, folder: string, name: string): Promise<void> {
  const { files, quarantine, bodies, log } = input;
  const path = join(folder, name);
  const uid = name.endsWith(bodySuffix) ? name.slice(0, -bodySuffix.length) : undefined;
  if (uid === undefined || !belongs(bodies, uid, path)) {
    await quarantine.move(path, foreign);
    return;
  }
  if (input.isPreparing(uid)) return;
  const entry = input.find(uid);
  if (entry?.isDone === true) bodies.remove(uid);
  if (entry !== undefined) return;
  try {
    const found = await files.lstat(path);
    const fresh = input.whole && found.isFile() && found.mtimeMs >= input.sweptAt;
    if (fresh && (await isMessage(files, path))) {
      // Whoever handed it in got no answer, and still has it.
      await files.unlink(path);
      log.info({ uid }, 'a message that was never accepted was removed from the queue');
    } else await quarantine.move(path, unknown);
  } catch (error) {
    if (!isMissing(error)) log.warn({ err: error, uid }, 'a message of the queue cannot be looked at');
  }
}

/** Begins as every message of the spool does: nobody else has put it there. */
async function isMessage(files: FileLayer, path: string): Promise<boolean> {
  const fd = await files.open(path, 'r');
  try {
    return (await readAt(files, fd, 0, firstField.length)).equals(firstField);
  } finally {
    await files.close(fd);
  }
}

function belongs(bodies: Bodies, uid: string, path: string): boolean {
  try {
    return bodies.path(uid) === path;
  } catch {
    return false;
  }
}
