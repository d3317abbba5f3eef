import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import { systemClock } from '../../../../core/clock.js';
import type { Lease } from '../../../../core/contracts/relay-queue-store.js';
import { uniqueId } from '../../../../core/disk/id.js';
import { isProblem } from '../../../../core/problem.js';
import { BodyRing } from '../../../../plugins/client-queue/postgres/body-ring.js';
import { OutageLog } from '../../../../plugins/client-queue/postgres/outage-log.js';
import { PostgresRelayQueue } from '../../../../plugins/client-queue/postgres/postgres-relay-queue.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { claiming, newEntry, settlement } from '../../../kit/relay-queue/entries.js';
import { memoryMessage } from '../../../kit/relay-queue/harness.js';
import { nodeOf } from '../../cluster/cluster-fixture.js';

/** Every table is full, old and rested at once. */
const hurriedRing = { openMs: 0, maxBytes: 0, restMs: 0, fewEntries: 0 };

/** A message that can be told from all others by its uid: small, or of several parts. */
export function bodyOf(uid: string): string {
  const hash = createHash('sha256').update(uid).digest('hex');
  const lines = hash.startsWith('0') ? 4000 + Number.parseInt(hash.slice(1, 4), 16) : 40;
  return `Subject: ${uid}\r\n\r\n${`${hash}${hash}\r\n`.repeat(lines)}`;
}

export async function isWhole(queue: PostgresRelayQueue, uid: string): Promise<boolean> {
  return (await buffer(await queue.open(uid))).toString('latin1').endsWith(bodyOf(uid));
}

interface LoadInput {
  readonly folder: string;
  readonly port: number;
  readonly node: string;
}

/** A queue of a node with a ring that turns as fast as it can. */
export async function openHurried({ node, ...server }: LoadInput) {
  const cluster = nodeOf(server, { node });
  await cluster.join();
  const { log, sentences } = rememberingLog();
  const bounds = { keepFinishedMs: 86_400_000, maxEntries: 1_000_000 };
  const outages = await OutageLog.open(join(server.folder, `outages-${node}`), { log });
  const queue = new PostgresRelayQueue({
    cluster,
    outages,
    log,
    bounds,
    maxWaitMs: 10_000,
    random: () => 0,
    ring: hurriedRing,
  });
  const ringOf = (fewEntries: number) => new BodyRing(cluster.database, log, { ...hurriedRing, fewEntries });
  const ring = ringOf(0);
  const close = async (): Promise<void> => {
    await queue.close();
    await cluster.leave();
  };
  return { queue, ring, ringOf, sentences, close };
}

/** What has happened to a message: one that was `accepted` is never lost, and `damaged` is none. */
export type Said = readonly [what: 'accepted' | 'delivered' | 'damaged', uid: string];

/** Takes mail in, reads each message that it claims, and delivers or defers it, while the ring turns. */
export async function load(input: LoadInput, say: (said: Said) => void, isOver: () => boolean): Promise<void> {
  const { queue, ring, ringOf, close } = await openHurried(input);
  const eager = ringOf(3);
  const accept = async (): Promise<void> => {
    const uid = uniqueId();
    const to = [`a@${uid.charCodeAt(uid.length - 1) % 5}.example`];
    const prepared = await queue.prepare(newEntry(systemClock.now(), { uid, to }), memoryMessage(bodyOf(uid)));
    await prepared.commit();
    prepared.release();
    say(['accepted', uid]);
  };
  const deliver = async (lease: Lease, nth: number): Promise<void> => {
    if (!(await isWhole(queue, lease.uid))) say(['damaged', lease.uid]);
    const fate = nth % 3 === 0 ? 'deferred' : 'delivered';
    const now = systemClock.now();
    await queue.settle(lease, settlement(lease, fate, { at: now, nextAttempt: now + 50 * (nth % 40) }));
    if (fate === 'delivered') say(['delivered', lease.uid]);
  };
  const send = async (): Promise<void> => {
    await queue.catchUp();
    const leases = await queue.claim(claiming(systemClock.now(), { limit: 30 }));
    await Promise.all(leases.map(deliver));
    if (leases.length === 0) await pause(10);
  };
  const again = async (work: () => Promise<void>): Promise<void> => {
    while (!isOver()) {
      await work().catch(async (error: unknown) => {
        if (!isProblem(error) && !isLost(error)) throw error;
        await pause(20);
      });
    }
  };
  await Promise.all([
    ...[accept, accept, accept, send].map(again),
    again(() => ring.turn()),
    again(() => eager.turn()),
  ]);
  await close();
}

/** A connection or a statement that was ended from outside, as behind a stop of the process. */
const isLost = (error: unknown): boolean =>
  error instanceof Error && /timeout|terminated|ended|canceling/i.test(error.message);
