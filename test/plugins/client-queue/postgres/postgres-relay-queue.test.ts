import { before, describe, test } from 'node:test';
import { relayQueueContract } from '../../../kit/relay-queue/contract.js';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { fillTables, postgresQueues } from './postgres-fixture.js';

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
});
