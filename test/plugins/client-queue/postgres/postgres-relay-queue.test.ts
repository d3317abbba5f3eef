import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { relayQueueContract } from '../../../kit/relay-queue/contract.js';
import { claiming, settlement } from '../../../kit/relay-queue/entries.js';
import { accept, claimOne } from '../../../kit/relay-queue/harness.js';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { until } from '../../../support/until.js';
import { fillTables } from '../../cluster/cluster-fixture.js';
import { postgresQueues } from './postgres-fixture.js';

describe('the queue in PostgreSQL', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
  });
  relayQueueContract(
    test,
    postgresQueues(() => server),
  );

  test('a node that is drained claims nothing, another one does, and it claims again afterwards', async (t) => {
    const harness = await postgresQueues(() => server)(t);
    const { queue, clock } = harness;
    const drain = (draining: boolean) =>
      server.psql(`update postern.session set draining = ${draining} where node = 'one'`, 'template');
    await accept(harness);
    await drain(true);
    await until('it drains', () => (queue.nextDue() === null ? true : undefined));
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
    await accept(harness);
    await harness.current?.();
    const { queue: other } = (await harness.another?.()) ?? assert.fail();
    await harness.current?.();
    assert.equal((await other.claim(claiming(clock.now()))).length, 2);
    const told = new Promise<void>((resolve) => queue.onDue(resolve));
    await drain(false);
    await told;
    const { uid } = await accept(harness, { to: ['rcpt@two.example'] });
    assert.deepEqual(
      (await queue.claim(claiming(clock.now()))).map((lease) => lease.uid),
      [uid],
    );
  });

  test('of new mail that an operator holds in part the rest is claimed, and that part when it is released', async (t) => {
    const harness = await postgresQueues(() => server)(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness, { to: ['a@one.example', 'b@one.example'] });
    await queue.mutate({ recipients: { [uid]: [1] } }, { operation: 'hold', reason: 'wait' }, clock.now());
    const lease = await claimOne(harness);
    assert.deepEqual(
      lease.recipients.map(({ address }) => address),
      ['a@one.example'],
    );
    await queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
    await queue.mutate({ uids: [uid] }, { operation: 'release' }, clock.now());
    const { recipients } = await claimOne(harness);
    assert.deepEqual(
      recipients.map(({ address }) => address),
      ['b@one.example'],
    );
  });

  test('another node learns of new mail that its node has no room for, or drains before', async (t) => {
    const harness = await postgresQueues(() => server)(t);
    const { queue, clock } = harness;
    const { queue: other } = (await harness.another?.()) ?? assert.fail();
    const claimedByOther = () =>
      until('the other has it', async () => (await other.claim(claiming(clock.now())))[0]?.uid, 10_000);
    const crowded = await accept(harness);
    assert.deepEqual(await queue.claim(claiming(clock.now(), { room: () => 0 })), []);
    assert.equal(await claimedByOther(), crowded.uid);
    await server.psql("update postern.session set draining = true where node = 'one'", 'template');
    await until('it drains', () => (queue.nextDue() === null ? true : undefined));
    const drained = await accept(harness, { to: ['rcpt@two.example'] });
    assert.equal(await claimedByOther(), drained.uid);
  });
});
