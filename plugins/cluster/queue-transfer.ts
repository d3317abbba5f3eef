import { existsSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { pino } from 'pino';
import type { CommandInput } from '../../core/cli/command.js';
import { withProgress } from '../../core/cli/terminal.js';
import type { MovedEntries, MoveQueue, QueueMove } from '../../core/contracts/cluster.js';
import { nodeIdOf } from '../../core/host/data-folder.js';
import { version } from '../../core/host/installation.js';
import { startError } from '../../core/problem.js';
import { formatNumber, pluralize } from '../../core/text/format.js';
import { ClusterNode } from './node.js';
import { ClusterOptions, type ClusterSettings } from './options.js';
import { type NodeState, readNodes } from './server-state.js';

const lookMs = 500;

/** Loads what knows the queue in files and the one in the database. */
export type LoadMove = () => Promise<MoveQueue>;

interface Transfer extends Pick<QueueMove, 'direction' | 'dryRun'> {
  readonly loadMove: LoadMove;
}

/**
 * Moves the queue while this command has the data folder, as the node whose server would.
 *
 * @throws start error while a server has the folder; of an export, while a node may send
 */
export async function transferQueue(
  { options, configuration, owner, clock }: CommandInput<Partial<ClusterSettings>>,
  { direction, dryRun, loadMove }: Transfer,
): Promise<MovedEntries> {
  const { data, hostname } = configuration;
  if (owner !== undefined) throw startError(`A server runs over the data folder ${data}. Stop it, and repeat this.`);
  if (!existsSync(data)) throw startError(`There is no data folder ${data}. Name it with --data or --config.`);
  const settings = ClusterOptions.parse(options);
  const log = pino({ level: 'silent' });
  const node = new ClusterNode({
    settings,
    node: settings.node ?? hostname,
    instance: await nodeIdOf(data),
    clock,
    log,
    report: () => ({ version }),
  });
  try {
    const complaint = await node.complaint();
    if (complaint !== undefined) throw startError(complaint);
    await node.join();
    if (node.session === undefined) throw startError(`The database does not answer: ${node.fault ?? 'no session'}.`);
    if (direction === 'export') await refuseSenders(node, settings.sessionSeconds);
    const move = await loadMove();
    return await withProgress('Looking at the queue', (show) => {
      const progress = (done: number, total: number): void =>
        show(`${formatNumber(done)} of ${pluralize(total, 'entry', 'entries')} done`);
      return move({ direction, data, cluster: node, clock, dryRun, progress });
    });
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
