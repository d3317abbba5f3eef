import { randomInt } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import type { MovedEntries, QueueMove } from '../../../core/contracts/cluster.js';
import { readOnlyFiles } from '../../../core/disk/file-layer.js';
import { startError } from '../../../core/problem.js';
import { CommitLog } from '../../../core/spool/commit-log.js';
import { OutageLog } from './outage-log.js';
import { PostgresRelayQueue } from './postgres-relay-queue.js';
import type { FileRelayQueue } from '../queue/file-relay-queue.js';
import { type MovableQueue, moveEntries } from '../queue/moving.js';
import { openRelayQueue } from '../queue/open-relay-queue.js';

const bounds = { keepFinishedMs: Infinity, maxEntries: Infinity };
const maxFinished = Infinity;
const maxWaitMs = 30_000;
const log = pino({ level: 'silent' });

/** Between the files of a data folder and the database. May be repeated, also after a kill. */
export async function moveQueue(move: QueueMove): Promise<MovedEntries> {
  const { direction, data, cluster, dryRun, progress } = move;
  if (direction === 'import') await refuseUnrestored(data, move);
  const files = await openFiles(move);
  try {
    const shared = new PostgresRelayQueue({
      cluster,
      // Of a node that has run here before.
      outages: dryRun ? new OutageLog(log) : await OutageLog.open(join(data, 'queue-outage'), { log }),
      log,
      bounds,
      maxWaitMs,
      random: (limit) => randomInt(limit),
    });
    try {
      if (!dryRun) await shared.catchUp();
      const [from, to] = direction === 'import' ? [files ?? nothing, shared] : [shared, files ?? nothing];
      return await moveEntries(from, to, { dryRun, progress });
    } finally {
      await shared.close();
    }
  } finally {
    await files?.close();
  }
}

/** Undefined where there is no queue in files, and none is to be made. */
async function openFiles({ data, direction, dryRun, clock }: QueueMove): Promise<FileRelayQueue | undefined> {
  const folder = join(data, 'queue');
  if (!existsSync(folder) && (direction === 'import' || dryRun)) return undefined;
  return openRelayQueue({ folder, clock, log, ...bounds, maxFinished, ...(dryRun && { files: readOnlyFiles }) });
}

const nothing: MovableQueue = {
  uids: () => Promise.resolve([]),
  wholes: () => Promise.resolve([]),
  adopt: () => Promise.reject(new Error('there is no queue')),
  drop: () => Promise.resolve([]),
  open: () => Promise.reject(new Error('there is no queue')),
};

/** A server that was killed has messages of the queue in the commit log of its spool. */
async function refuseUnrestored(data: string, { clock }: QueueMove): Promise<void> {
  const folder = join(data, 'spool-log');
  if (!existsSync(folder)) return;
  const commits = await CommitLog.open(folder, { files: readOnlyFiles, log, clock });
  if (commits.hasUnreleased)
    throw startError(
      `The last server over ${data} was killed: some messages are only in its commit log. Start it once without plugins.cluster, stop it, and repeat this.`,
    );
}
