import type { SharedDatabase } from '../../../../core/contracts/cluster.js';
import type { OpenedRelayQueue } from '../../../../core/contracts/relay-queue-store.js';
import { OutageLog } from '../../../../plugins/client-queue/postgres/outage-log.js';
import { PostgresRelayQueue } from '../../../../plugins/client-queue/postgres/postgres-relay-queue.js';
import type { ClusterNode } from '../../../../plugins/cluster/node.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import type { QueueHarness, TestContext } from '../../../kit/relay-queue/harness.js';
import { emptyTables, nodeOf, seenAs } from '../../cluster/cluster-fixture.js';
import { HandClock } from '../../../support/hand-clock.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { until } from '../../../support/until.js';
import type { Postgres } from '../../../support/postgres.js';
import { systemClock } from '../../../../core/clock.js';

interface Running {
  readonly queue: PostgresRelayQueue;
  readonly node: ClusterNode;
}

/** Opens queues over one database, one test after the other: each finds it empty. */
export function postgresQueues(server: () => Postgres) {
  return async (
    test: TestContext,
    bounds: { readonly maxEntries?: number } = {},
    around = (database: SharedDatabase): SharedDatabase => database,
  ): Promise<QueueHarness> => {
    await server().psql(emptyTables, 'template');
    const clock = new HandClock(systemClock.now());
    const { log } = rememberingLog();
    const opened = new Set<Running>();
    const start = async (node: string, instance: string): Promise<Running> => {
      const cluster = nodeOf(server(), { node, instance });
      await cluster.join();
      const timed = seenAs(cluster, { clock, database: around(cluster.database) });
      const queue = new PostgresRelayQueue({
        cluster: timed,
        outages: await OutageLog.open(await temporaryFolder(test), { log }),
        log,
        bounds: { keepFinishedMs: 7 * 86_400_000, maxEntries: 1000, ...bounds },
        maxWaitMs: 2000,
        random: () => 0,
      });
      await queue.catchUp();
      const running = { queue, node: cluster };
      opened.add(running);
      return running;
    };
    test.after(async () => {
      for (const { queue, node } of opened) {
        await queue.close();
        await node.leave();
      }
    });
    let current = await start('one', 'first');
    const harness = {
      get queue(): OpenedRelayQueue {
        return current.queue;
      },
      clock,
      current: async () => {
        for (const { queue } of opened) await queue.catchUp(true);
      },
      reopen: async () => {
        await current.queue.close();
        await current.node.leave();
        opened.delete(current);
        current = await start('one', 'first');
        return current.queue;
      },
      afterCrash: async () => {
        await current.node.leave();
        opened.delete(current);
        current = await start('one', 'first');
        return current.queue;
      },
      another: async () => {
        const other = await start('two', 'second');
        const presumeDead = async (): Promise<void> => {
          const session = other.node.session ?? '';
          await server().psql(`update postern.session set dead = true where key = '${session}'`, 'template');
          await until('it knows', () => (other.node.session === session ? undefined : true));
        };
        return { queue: other.queue, presumeDead };
      },
    };
    return harness;
  };
}
