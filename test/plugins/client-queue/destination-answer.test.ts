import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { QueueStatistics } from '../../../core/contracts/relay-queue.js';
import { waitingDestinations } from '../../../plugins/client-queue/http/destinations.js';
import { HandClock } from '../../support/hand-clock.js';

type Fixture = Parameters<typeof waitingDestinations>[0];

const count = 200_000;
const site = 'site:mx.provider.example';
const rows: QueueStatistics['byDestination'] = Array.from({ length: count }, (_, number) => ({
  destination: `domain-${number}.example`,
  total: 2,
  ages: [2],
  oldest: 1000 + number,
  active: 0,
  lastReply: { code: 451, status: '4.3.0', text: `Reply ${number}`, host: null, at: number },
}));

test('very many destinations are looked through, and others have their turns meanwhile', async () => {
  const fixture = {
    queue: { statistics: () => Promise.resolve({ byDestination: rows }) },
    controls: { list: () => [{ destination: site }], get: () => undefined },
    sites: { peek: (destination: string) => (destination.endsWith('7.example') ? site : undefined) },
    clock: new HandClock(),
  };
  let turns = 0;
  const turn = (): void => {
    turns += 1;
    timer = setImmediate(turn);
  };
  let timer = setImmediate(turn);
  const found = await waitingDestinations(fixture as unknown as Fixture);
  clearImmediate(timer);
  assert.ok(turns >= 1, `${turns} turns`);
  assert.equal(found.length, 1000);
  const [ofSite, first] = found;
  assert.deepEqual(
    [ofSite?.destination, ofSite?.waiting, ofSite?.oldest],
    [site, (2 * count) / 10, '1970-01-01T00:00:01.007Z'],
  );
  assert.match(JSON.stringify(ofSite?.lastReply), /"Reply 199997"/);
  assert.deepEqual([first?.destination, first?.waiting], ['domain-0.example', 2]);
});
