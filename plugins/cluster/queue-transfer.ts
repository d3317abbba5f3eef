import { setTimeout as pause } from 'node:timers/promises';
import type { MovedEntries, MoveQueue, QueueMove } from '../../core/contracts/cluster.js';
import type { Log } from '../../core/log/log.js';
import { startError } from '../../core/problem.js';
import { ClusterNode } from './node.js';
import type { ClusterSettings } from './options.js';
import { type NodeState, readNodes } from './database/server-state.js';

const lookMs = 500;

/** Loads what knows the queue in files and the one in the database. */
export type LoadMove = () => Promise<MoveQueue>;

interface Transfer extends Omit<QueueMove, 'cluster'> {
  readonly settings: ClusterSettings;
  readonly node: string;
  readonly instance: string;
  readonly version: string;
  readonly log: Log;
  readonly loadMove: LoadMove;
}

/**
 * Moves the queue as the node whose server has the data folder at other times.
 *
 * @throws start error; of an export, while a node may send
 */
export async function transferQueue({ settings, version, log, loadMove, ...given }: Transfer): Promise<MovedEntries> {
  const { node: name, instance, clock, data, direction, dryRun, progress } = given;
  const node = new ClusterNode({ settings, node: name, instance, clock, log, report: () => ({ version }) });
  try {
    const complaint = await node.complaint();
    if (complaint !== undefined) throw startError(complaint);
    await node.join();
    if (node.session === undefined) throw startError(`The database does not answer: ${node.fault ?? 'no session'}.`);
    if (direction === 'export') await refuseSenders(node, settings.sessionSeconds);
    const move = await loadMove();
    return await move({ direction, data, cluster: node, clock, dryRun, progress });
  } finally {
    await node.leave();
  }
}

/** What a node claims while entries are copied would be sent twice. One that was killed is dead after a while. */
async function refuseSenders({ database, session }: ClusterNode, sessionSeconds: number): Promise<void> {
  const isIdle = ({ session: key, state, draining, leases }: NodeState): boolean =>
    key === session || state === 'dead' || (draining && leases === 0);
  for (;;) {
    const nodes = await readNodes((text, values) => database.query('pages', text, values), sessionSeconds);
    const senders = nodes.filter((one) => !isIdle(one));
    if (senders.length === 0) return;
    if (senders.some(({ state }) => state !== 'silent')) {
      const names = senders.map(({ node }) => node).join(', ');
      throw startError(
        `May still send what is to be exported: ${names}. Stop it, or drain it (postern cluster drain NODE) and wait until it has no leases.`,
      );
    }
    await pause(lookMs);
  }
}
