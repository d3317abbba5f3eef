import { join } from 'node:path';
import { isMissing } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import type { Log } from '../../../core/log/log.js';
import { envelopeLineOf, envelopeSuffix } from './body-envelope.js';
import { bodySuffix, shards, type Bodies } from './bodies.js';
import type { Quarantine } from './quarantine.js';
import type { QueuedEntry } from './queued-entry.js';
import { TimeSlice } from '../../../core/concurrency.js';

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

const unaccepted =
  'No entry of the queue belongs to it: the server ended before it accepted the message, or the journal has lost the entry.';
const unknown = 'No entry of the queue belongs to it: the journal of the queue was damaged or changed.';
const foreign = 'It was in the folder of the queue, and is none of its files.';
const damaged = 'The message is not of the size that its entry says.';

/** Looks at every message once: what has no entry, and what an entry lacks. */
export async function sweep(input: SweepInput, open: Iterable<QueuedEntry>): Promise<Swept> {
  const slice = new TimeSlice();
  for (const shard of shards) {
    const folder = join(input.folder, shard);
    const names = await input.files.readdir(folder);
    const isEnvelope = (name: string): boolean => name.endsWith(envelopeSuffix);
    // An envelope goes with its message, if there is one.
    for (const name of [...names.filter((one) => !isEnvelope(one)), ...names.filter(isEnvelope)]) {
      await (isEnvelope(name) ? lookAtEnvelope(input, folder, name) : lookAt(input, folder, name));
      await slice.yieldIfDue();
    }
  }
  const complaints: { readonly entry: QueuedEntry; readonly complaint: 'missing' | 'damaged' }[] = [];
  for (const entry of open) {
    const complaint = await input.bodies.complaint(entry);
    if (complaint !== undefined && entry.finishedAt === null) {
      complaints.push({ entry, complaint });
      if (complaint === 'damaged') await input.quarantine.move(input.bodies.path(entry.uid), damaged);
    }
    await slice.yieldIfDue();
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
    const isFresh = input.whole && found.isFile() && found.mtimeMs >= input.sweptAt;
    const line = await envelopeLineOf(files, bodies.envelopePath(uid)).catch(() => undefined);
    await quarantine.move(path, isFresh ? unaccepted : unknown, line?.toString());
  } catch (error) {
    if (!isMissing(error)) log.warn({ err: error, uid }, 'a message of the queue cannot be looked at');
  }
}

/** Of a message that has gone, or was set aside with what stood in it. */
async function lookAtEnvelope({ bodies, ...input }: SweepInput, folder: string, name: string): Promise<void> {
  const uid = name.slice(0, -envelopeSuffix.length);
  const path = join(folder, name);
  if (!belongs(bodies, uid, `${path.slice(0, -envelopeSuffix.length)}${bodySuffix}`)) {
    await input.quarantine.move(path, foreign);
    return;
  }
  if (input.isPreparing(uid) || input.find(uid)?.isDone === false) return;
  await bodies.removeEnvelope(uid);
}

function belongs(bodies: Bodies, uid: string, path: string): boolean {
  try {
    return bodies.path(uid) === path;
  } catch {
    return false;
  }
}
