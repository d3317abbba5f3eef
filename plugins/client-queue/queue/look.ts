import { join } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import { readOnlyFiles } from '../../../core/disk/file-layer.js';
import type { Log } from '../../../core/log/log.js';
import { isDamageHold } from './damage-holds.js';
import { Interned, normalReason } from './queued-entry.js';
import { Journal } from './journal.js';
import { loadEntries } from './loading.js';
import { Quarantine } from './quarantine.js';

export interface StoppedQueue {
  /** Sentences about unreadable parts of the journal. */
  readonly damage: readonly string[];
  readonly open: number;
  readonly held: number;
  /** Held because of damage. */
  readonly damaged: number;
}

/** Inspects the queue of a stopped server without changing it. */
export async function lookAtStoppedQueue(folder: string, clock: Clock, log: Log): Promise<StoppedQueue> {
  const files = readOnlyFiles;
  const journal = await Journal.open(join(folder, 'journal'), { files, log, clock });
  const quarantine = new Quarantine({ folder: join(folder, 'quarantine'), files, clock, log });
  const texts = new Interned();
  const deps = { intern: (text: string): string => texts.of(text), reasonOf: normalReason };
  const loaded = await loadEntries({ folder, files, journal, quarantine, deps });
  await loaded.snapshot?.close();
  const open = loaded.entries.filter(({ finishedAt }) => finishedAt === null);
  const damage = journal.damage.map(({ sentence }) => sentence);
  if (!loaded.whole && damage.length === 0) damage.push('The snapshot or the journal of the queue is damaged.');
  return {
    damage,
    open: open.length,
    held: open.filter(({ state }) => state === 'held').length,
    damaged: open.filter(({ hold }) => isDamageHold(hold)).length,
  };
}
