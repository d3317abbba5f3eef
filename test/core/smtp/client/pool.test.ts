import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ClientPool, type PoolLimits } from '../../../../core/smtp/client/pool.js';
import { HandClock } from '../../../support/hand-clock.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import { described, destinationOf, failureOf, message, outcomes } from './fixture.js';

async function fixture(t: Ending, limits: Partial<PoolLimits> = {}, script: SinkScript = {}) {
  const sink = await SmtpSink.start(t, script);
  const clock = new HandClock();
  const pool = new ClientPool(limits, clock);
  atEnd(t, () => pool.close());
  return { sink, clock, pool, destination: destinationOf(sink) };
}

test('one connection serves message after message', async (t) => {
  const { sink, pool, destination } = await fixture(t);
  for (let sent = 0; sent < 5; sent += 1) {
    assert.deepEqual(outcomes(await pool.send(destination, message())), ['delivered']);
  }
  assert.equal(sink.connections, 1);
  assert.deepEqual(pool.statistics(), { leased: 0, idle: 1, waiting: 0, opened: 1, reused: 4, failed: 0 });
});

test('destinations that differ in anything do not share connections', async (t) => {
  const { sink, pool, destination } = await fixture(t, {}, { auth: { username: 'a', password: 'x' } });
  const auth = { username: 'a', password: 'x', plaintext: 'loopback' } as const;
  await pool.send(destination, message());
  await pool.send({ ...destination, helloName: 'other.example' }, message());
  await pool.send({ ...destination, tls: { mode: 'opportunistic' } }, message());
  await pool.send({ ...destination, auth }, message());
  const wrong = await pool.send({ ...destination, auth: { ...auth, password: 'wrong' } }, message());
  assert.deepEqual(outcomes(wrong), ['reply auth 535 5.7.8 temporary']);
  assert.equal(sink.connections, 5);
});

test('no more connections are made than a destination may have, and those who wait come in turn', async (t) => {
  const { sink, pool, destination } = await fixture(t, { connectionsEach: 2 });
  const order: number[] = [];
  const leases = await Promise.all([pool.lease(destination), pool.lease(destination)]);
  const waiting = [0, 1, 2].map(async (number) => {
    const lease = await pool.lease(destination);
    order.push(number);
    lease.release();
  });
  assert.equal(pool.statistics().waiting, 3);
  for (const lease of leases) lease.release();
  await Promise.all(waiting);
  assert.deepEqual(order, [0, 1, 2]);
  assert.equal(sink.connections, 2);
});

test('a lease may ask for fewer connections than the pool allows', async (t) => {
  const { pool, destination } = await fixture(t);
  const first = await pool.lease(destination, { most: 1 });
  const second = pool.lease(destination, { most: 1 });
  assert.equal(pool.statistics().waiting, 1);
  first.release();
  (await second).release();
  assert.equal(pool.statistics().opened, 1);
});

test('groups of one destination share the connections that it may have', async (t) => {
  const { pool, destination } = await fixture(t, { connectionsEach: 2 });
  const first = await pool.lease(destination, { group: 'one', most: 1 });
  const waiting = pool.lease(destination, { group: 'one', most: 1 });
  const other = await pool.lease(destination, { group: 'two', most: 1 });
  const third = pool.lease(destination, { group: 'three', most: 1 });
  assert.deepEqual([pool.statistics().leased, pool.statistics().waiting], [2, 2]);
  other.release();
  (await third).release();
  assert.equal(pool.statistics().waiting, 1);
  first.release();
  (await waiting).release();
});

test('a full pool makes room by closing what another destination keeps', async (t) => {
  const { sink, pool, destination } = await fixture(t, { connections: 1 });
  const other = await SmtpSink.start(t);
  await pool.send(destination, message());
  assert.deepEqual(outcomes(await pool.send(destinationOf(other), message())), ['delivered']);
  await sink.until(({ open }) => open === 0);
  const lease = await pool.lease(destination);
  const waiting = pool.send(destinationOf(other), message());
  assert.equal(pool.statistics().waiting, 1);
  lease.release();
  assert.deepEqual(outcomes(await waiting), ['delivered']);
});

test('too many who wait are refused, and who is tired of waiting may leave', async (t) => {
  const { pool, destination } = await fixture(t, { connectionsEach: 1, waiting: 1 });
  const lease = await pool.lease(destination);
  const abort = new AbortController();
  const waiting = failureOf(pool.lease(destination, { signal: abort.signal }));
  assert.equal(described(await failureOf(pool.lease(destination))), 'local connect 451 4.3.0 temporary');
  abort.abort();
  assert.equal(described(await waiting), 'local connect 451 4.3.0 temporary');
  assert.equal(pool.statistics().waiting, 0);
  lease.release();
  lease.release();
  assert.equal(pool.statistics().leased, 0);
});

test('a connection is given up when it is old, idle for long, much used or has refused something', async (t) => {
  const { sink, clock, pool, destination } = await fixture(t, { uses: 2, ageMs: 60_000, idleMs: 10_000 });
  await pool.send(destination, message());
  await pool.send(destination, message());
  assert.equal(pool.statistics().idle, 0);
  await pool.send(destination, message());
  clock.advance(61);
  await pool.send(destination, message());
  assert.equal(sink.connections, 3);
  sink.script = { steps: { dot: '451 4.3.0 Later' } };
  await pool.send(destination, message());
  assert.equal(pool.statistics().idle, 0);
});

test('what is kept too long unused is closed by itself', async (t) => {
  const { sink, clock, pool, destination } = await fixture(t, { idleMs: 20 });
  await pool.send(destination, message());
  clock.advance(1);
  await sink.until(({ open }) => open === 0);
  assert.equal(pool.statistics().idle, 0);
  assert.equal(sink.commands.at(-1), 'QUIT');
});

test('a kept connection that the server has closed is replaced without anybody noticing', async (t) => {
  const cases = [{ close: '' }, { close: '421 4.4.2 Idle too long' }, { reset: true }] as const;
  for (const mail of cases) {
    const { sink, pool, destination } = await fixture(t, {}, { steps: { mail: [undefined, mail, undefined] } });
    await pool.send(destination, message());
    const settled: string[] = [];
    const result = await pool.send(destination, message(), { settled: (_, { outcome }) => settled.push(outcome) });
    assert.deepEqual(outcomes(result), ['delivered']);
    assert.deepEqual(settled, ['delivered']);
    assert.equal(sink.connections, 2);
    assert.equal(sink.messages.length, 2);
  }
});

test('a message whose text was sent is never sent again here', async (t) => {
  const { sink, pool, destination } = await fixture(t, {}, { steps: { dot: [undefined, { reset: true }] } });
  await pool.send(destination, message());
  assert.deepEqual(outcomes(await pool.send(destination, message())), [
    'closed final 451 4.4.2 temporary after the dot',
  ]);
  assert.equal(sink.messages.length, 2);
});

test('a new connection that fails at once is not tried again here', async (t) => {
  const { sink, pool, destination } = await fixture(t, {}, { steps: { mail: { close: '' } } });
  assert.deepEqual(outcomes(await pool.send(destination, message())), ['closed mail 451 4.4.2 temporary']);
  assert.equal(sink.connections, 1);
});

test('a connection that cannot be made leaves its place to the next', async (t) => {
  const { pool, sink, destination } = await fixture(t, { connectionsEach: 1 }, { steps: { greeting: '554 5.7.1 No' } });
  const results = await Promise.all([1, 2, 3].map(() => pool.send(destination, message())));
  for (const result of results) assert.deepEqual(outcomes(result), ['reply greeting 554 5.7.1 permanent']);
  assert.deepEqual(pool.statistics(), { leased: 0, idle: 0, waiting: 0, opened: 0, reused: 0, failed: 3 });
  assert.equal(sink.connections, 3);
});

test('closing says QUIT to what is kept, refuses who waits, and takes leases back', async (t) => {
  const { pool, sink, destination } = await fixture(t, { connectionsEach: 1 });
  const other = await SmtpSink.start(t);
  await pool.send(destinationOf(other), message());
  const lease = await pool.lease(destination);
  const waiting = failureOf(pool.lease(destination));
  await pool.close();
  assert.equal(described(await waiting), 'local connect 451 4.3.0 temporary');
  assert.equal(other.commands.at(-1), 'QUIT');
  lease.release();
  await sink.until(({ open }) => open === 0);
  assert.equal(described(await failureOf(pool.lease(destination))), 'local connect 451 4.3.0 temporary');
});

test('many messages at once share few connections, and each arrives once', async (t) => {
  const { pool, sink, destination } = await fixture(t, { connectionsEach: 5 }, { forgetText: true });
  const sending = Array.from({ length: 300 }, (_, number) =>
    pool.send(destination, message({ to: [`r${number}@example.com`] })),
  );
  for (const result of await Promise.all(sending)) assert.deepEqual(outcomes(result), ['delivered']);
  assert.equal(new Set(sink.messages.map(({ recipients }) => recipients[0])).size, 300);
  assert.equal(sink.messages.length, 300);
  assert.equal(sink.connections, 5);
});

test('destinations of one group share what they may have, kept connections and all', async (t) => {
  const { sink, pool, destination } = await fixture(t);
  const other = { ...destination, host: 'other.example' };
  const options = { most: 1, group: 'site' };
  const first = await pool.lease(destination, options);
  const second = pool.lease(other, options);
  assert.deepEqual(pool.statistics(), { leased: 1, idle: 0, waiting: 1, opened: 1, reused: 0, failed: 0 });
  first.release();
  const lease = await second;
  await sink.until(({ open }) => open === 1);
  assert.deepEqual(pool.statistics(), { leased: 1, idle: 0, waiting: 0, opened: 2, reused: 0, failed: 0 });
  const stranger = await pool.lease(destination, { most: 1, group: 'another site' });
  stranger.release();
  lease.release();
  assert.equal(pool.statistics().idle, 2);
});

test('a group that may have less closes what is idle, and keeps what is in use', async (t) => {
  const { sink, pool, destination } = await fixture(t);
  const options = { most: 3, group: 'site' };
  const leases = await Promise.all([1, 2, 3].map(() => pool.lease(destination, options)));
  const stranger = await pool.lease(destination, { group: 'another site' });
  stranger.release();
  pool.trim('site', 2);
  assert.equal(pool.statistics().leased, 3);
  leases[0]?.release();
  leases[1]?.release();
  pool.trim('site', 2);
  await sink.until(({ open }) => open === 3);
  assert.deepEqual([pool.statistics().leased, pool.statistics().idle], [1, 2]);
  pool.trim('site', 0);
  await sink.until(({ open }) => open === 2);
  pool.trim('nobody', 0);
  assert.deepEqual([pool.statistics().leased, pool.statistics().idle], [1, 1]);
  leases[2]?.release();
});

test('a group whose destination cannot be called lets the next one try', async (t) => {
  const { pool, destination } = await fixture(t);
  const dead = { ...destination, port: 1 };
  const options = { most: 1, group: 'site' };
  const failing = pool.lease(dead, options);
  const waiting = pool.lease(destination, options);
  await assert.rejects(failing);
  (await waiting).release();
  assert.equal(pool.statistics().waiting, 0);
});

test('a group that waits at one server does not wait at another one', async (t) => {
  const { pool, destination } = await fixture(t, { connectionsEach: 1 });
  const other = destinationOf(await SmtpSink.start(t));
  const options = { most: 3, group: 'client' };
  const first = await pool.lease(destination, options);
  const waiting = pool.lease(destination, options);
  (await pool.lease(other, options)).release();
  assert.equal(pool.statistics().waiting, 1);
  first.release();
  (await waiting).release();
});
