import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import { openSpool } from '../../../core/spool/file-spool.js';
import { join } from 'node:path';
import { problem } from '../../../core/problem.js';
import { parseNetworks } from '../../../core/net/networks.js';
import { Pipeline } from '../../../core/pipeline/pipeline.js';
import type { Recipient, SmtpSession, Transaction } from '../../../core/pipeline/transaction.js';
import { hold, route } from '../../../core/pipeline/verdict.js';
import { parseAddress } from '../../../core/mime/address.js';
import { DestinationRules } from '../../../plugins/client-queue/delivery/destination.js';
import { relayHook } from '../../../plugins/client-queue/delivery/relay-hook.js';
import { queueTargets } from '../../../plugins/client-queue/delivery/relay-target.js';
import { PipelineDelivery } from '../../../core/pipeline/submission.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { FakeTarget, type FakeTargetOptions } from '../../core/pipeline/fake-target.js';
import { sessionOf, transactionOf } from '../../core/pipeline/pipeline-fixture.js';
import { outboundFixture } from './outbound-fixture.js';

/** A pipeline with the targets of the queue and one more, `box`, for `local.example`. */
async function pipelineWithQueue(t: Parameters<typeof outboundFixture>[0], box: FakeTargetOptions = {}) {
  const fixture = await outboundFixture(t);
  const { log } = rememberingLog();
  const pipeline = new Pipeline({ log, clock: systemClock });
  const spool = await openSpool(join(fixture.folder, 'spool2'), { log, reserveBytes: 0 });
  const local = new PipelineDelivery({ pipeline, spool, clock: systemClock });
  const targets = queueTargets({
    queue: fixture.queue,
    local,
    clock: systemClock,
    settings: () => ({ keepDeadLetters: 60, expireAfter: 1000, warnAfter: 100 }),
    firstPause: () => 60_000,
    speaksLmtp: () => false,
  });
  for (const [name, target] of Object.entries(targets)) pipeline.deliverTo('client-queue', name, target);
  const fake = new FakeTarget('box', [], box);
  pipeline.deliverTo('site', 'box', fake);
  pipeline.on('site', 'rcptTo', { order: 'route' }, ({ address }) =>
    address.domain === 'local.example' ? route({ target: 'box', destination: address.address }) : { ...nothing },
  );
  const refusal: { why?: string } = {};
  const hook = relayHook({
    localDomains: () => new Set(['local.example']),
    relayNetworks: () => parseNetworks(['192.0.2.0/24']),
    rules: () => new DestinationRules({ routes: {} }),
    local,
    refusal: () => refusal.why,
  });
  pipeline.on('client-queue', 'rcptTo', { order: 'route', before: 'site' }, hook);

  async function deliver(addresses: readonly string[], about: Partial<Transaction> = {}) {
    const transaction = { ...transactionOf([]), ...about };
    const recipients: Recipient[] = [];
    for (const text of addresses) {
      const address = parseAddress(text);
      const decision = await pipeline.snapshot().decide('rcptTo', { transaction, address });
      if (decision.outcome === 'pass' && decision.hop)
        recipients.push({ address, hop: decision.hop, discarded: false });
    }
    return deliverTo(recipients, transaction);
  }

  async function deliverTo(recipients: readonly Recipient[], transaction: Transaction = transactionOf([])) {
    const writer = await spool.create(Buffer.from('Return-Path: <>\r\n'), Buffer.from('Received: x\r\n'));
    await writer.write(Buffer.from('Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nMessage-ID: <1@x>\r\n\r\nhello\r\n'));
    return pipeline.snapshot().deliver({ ...transaction, recipients }, await writer.finish());
  }
  return { ...fixture, pipeline, fake, deliver, deliverTo, refusal };
}

const nothing = { postern: 'verdict', kind: 'next' } as const;
const stranger: SmtpSession = { ...sessionOf(), remote: { address: '198.51.100.1', port: 1 } };

test('while the queue takes nothing, recipients of others are told to come again, before their mail is sent', async (t) => {
  const { pipeline, refusal } = await pipelineWithQueue(t);
  refusal.why = 'Try again later.';
  const decide = (address: string) =>
    pipeline.snapshot().decide('rcptTo', { transaction: transactionOf([]), address: parseAddress(address) });
  const far = await decide('a@one.example');
  assert.deepEqual(far.outcome === 'refuse' && [far.reply.code, far.reply.status], [451, '4.3.0']);
  assert.equal((await decide('b@local.example')).outcome, 'pass');
});

test('one transaction is one entry under its id, with what lists show', async (t) => {
  const { deliver, queue } = await pipelineWithQueue(t);
  const { summary } = await deliver(['a@one.example', 'b@two.example', 'a@one.example']);
  assert.equal(summary.code, 250);
  const entry = await queue.find('id1');
  assert.deepEqual(
    entry?.recipients.map(({ address, destination }) => `${address} ${destination}`),
    ['a@one.example one.example', 'b@two.example two.example'],
  );
  assert.deepEqual([entry?.subject, entry?.internetMessageId, entry?.sender], ['Grüße', '<1@x>', 'from@example.com']);
  assert.equal(entry?.accepted.source.listener, 'mx');
});

test('a stranger relays nothing, whatever the address; a user, a relay network and the server itself do', async (t) => {
  const { pipeline } = await pipelineWithQueue(t);
  const ask = async (session: SmtpSession): Promise<string> => {
    const transaction = { ...transactionOf([]), session };
    const decision = await pipeline
      .snapshot()
      .decide('rcptTo', { transaction, address: parseAddress('a@one.example') });
    return decision.outcome === 'pass' ? (decision.hop?.target ?? '') : decision.outcome;
  };
  assert.equal(await ask(stranger), 'refuse');
  assert.equal(await ask({ ...stranger, remote: { address: '127.0.0.1', port: 1 } }), 'refuse');
  assert.equal(await ask({ ...stranger, user: { username: 'anna@local.example' } }), 'relay');
  assert.equal(await ask({ ...stranger, internal: true }), 'relay');
  assert.equal(await ask(sessionOf()), 'relay');
});

test('a queued route is an entry for its target, due at once', async (t) => {
  const fixture = await pipelineWithQueue(t);
  const hop = { target: 'box', destination: 'api', data: { key: 7 } };
  fixture.pipeline.on('site', 'rcptTo', {}, () => route(hop, { queued: true }));
  assert.equal((await fixture.deliver(['a@local.example'])).summary.code, 250);
  const entry = await fixture.queue.find('id1-queue');
  const [recipient] = entry?.accepted.recipients ?? [];
  assert.deepEqual([recipient?.destination, recipient?.hop], ['target:box', hop]);
  assert.deepEqual(entry?.nextAttempt, entry?.queuedAt);
  await fixture.outbound.start();
  await fixture.entryWhen('id1-queue', ({ state }) => state === 'delivered');
  assert.deepEqual(
    fixture.parcels.map(({ recipients }) => recipients[0]?.hop),
    [hop],
  );
});

test('what a target defers is queued for that target with its hop, and a refusal goes to the sender', async (t) => {
  const refusals: Readonly<Record<string, readonly ['deferred' | 'refused', number, string]>> = {
    'b@local.example': ['deferred', 451, '4.2.0'],
    'c@local.example': ['refused', 550, '5.1.1'],
  };
  const outcome: NonNullable<FakeTargetOptions['outcome']> = (recipient) => {
    const refusal = refusals[recipient.address.address];
    if (refusal === undefined) return { recipient, outcome: 'delivered' };
    const [made, code, status] = refusal;
    return { recipient, outcome: made, code, status, text: 'No' };
  };
  const fixture = await pipelineWithQueue(t, { outcome });
  const { summary } = await fixture.deliver(['a@local.example', 'b@local.example', 'c@local.example']);
  assert.equal(summary.code, 250);
  const retry = await fixture.queue.find('id1-retry');
  const [b] = retry?.accepted.recipients ?? [];
  assert.deepEqual(
    [b?.address, b?.destination, b?.hop],
    ['b@local.example', 'target:box', { target: 'box', destination: 'b@local.example' }],
  );
  assert.deepEqual([b?.lastReply?.code, retry?.state], [451, 'deferred']);

  await fixture.outbound.start();
  const bounced = await fixture.tried('id1-bounce');
  assert.deepEqual([bounced.state, bounced.lastReply?.status], ['bounced', '5.1.1']);
  await fixture.entryWhen('id1-bounce', ({ notices }) => notices.length === 0);
  assert.deepEqual(
    fixture.submissions.map(({ id }) => id),
    ['id1-bounce-1'],
  );

  await fixture.queue.mutate({ uids: ['id1-retry'] }, { operation: 'retry' }, systemClock.now());
  await fixture.entryWhen('id1-retry', ({ state }) => state === 'delivered');
  assert.deepEqual(
    fixture.parcels.map(({ id, recipients }) => [id, recipients[0]?.hop.destination]),
    [['id1-retry', 'b@local.example']],
  );
});

test('mail that a hook holds waits for an operator, and goes where it would have gone once it is released', async (t) => {
  const fixture = await pipelineWithQueue(t);
  fixture.pipeline.on('site', 'message', {}, () => hold('looks odd'));
  assert.equal((await fixture.deliver(['a@local.example'])).summary.code, 250);
  const held = await fixture.queue.find('id1-hold');
  assert.deepEqual([held?.state, held?.hold, fixture.fake.holds.length], ['held', 'looks odd', 0]);
  await fixture.outbound.start();
  await fixture.queue.mutate({ uids: ['id1-hold'] }, { operation: 'release' }, systemClock.now());
  await fixture.entryWhen('id1-hold', ({ state }) => state === 'delivered');
  assert.equal(fixture.parcels[0]?.recipients[0]?.hop.target, 'box');
});

test('a recipient that a hook holds is routed when it is accepted; one without a route is refused', async (t) => {
  const fixture = await pipelineWithQueue(t);
  fixture.pipeline.on('site', 'rcptTo', { order: 'first' }, () => hold('new sender'));
  assert.equal((await fixture.deliver(['a@local.example'])).summary.code, 250);
  assert.equal((await fixture.queue.find('id1-hold'))?.accepted.recipients[0]?.destination, 'target:box');
  const { summary } = await fixture.deliver(['a@one.example'], { id: 'id2', session: stranger });
  assert.deepEqual([summary.code, summary.status], [550, '5.7.1']);
});

test('a request for a notice of local delivery goes through the queue, and is answered', async (t) => {
  const fixture = await pipelineWithQueue(t);
  const transaction = transactionOf([]);
  const address = parseAddress('a@local.example');
  const dsn = { notify: ['success'] as const };
  const decision = await fixture.pipeline.snapshot().decide('rcptTo', { transaction, address, dsn });
  assert.ok(decision.outcome === 'pass' && decision.hop);
  assert.deepEqual([decision.hop.target, decision.hop.destination], ['relay', 'target:box']);
  await fixture.deliverTo([{ address, hop: decision.hop, discarded: false, dsn }]);
  await fixture.outbound.start();
  const entry = await fixture.tried('id1');
  assert.equal(entry.state, 'delivered');
  await fixture.entryWhen('id1', ({ notices }) => notices.length === 0);
  assert.equal(fixture.submissions.length, 1);
});

test('a full queue answers 452, and leaves nothing', async (t) => {
  const fixture = await pipelineWithQueue(t);
  const full = { prepare: () => Promise.reject(problem('unavailable')) };
  const targets = queueTargets({
    queue: full,
    local: { route: () => Promise.resolve(undefined) },
    clock: systemClock,
    settings: () => ({ keepDeadLetters: 60, expireAfter: 1, warnAfter: 1 }),
    firstPause: () => 1,
    speaksLmtp: () => false,
  });
  const delivery = await targets.relay.start(transactionOf([]), []);
  const writer = await (
    await openSpool(join(fixture.folder, 'spool3'), { log: rememberingLog().log, reserveBytes: 0 })
  ).create(Buffer.from('Return-Path: <>\r\n'), Buffer.alloc(0));
  await assert.rejects(delivery.body(await writer.finish()), { problem: 'storage-full' });
});

test('an entry knows whether a stranger has sent it', async (t) => {
  const { deliverTo, queue } = await pipelineWithQueue(t);
  const address = parseAddress('ben@other.example');
  const recipient = { address, hop: { target: 'relay', destination: 'other.example' }, discarded: false };
  for (const stranger of [true, false]) {
    await deliverTo([recipient], { ...transactionOf([]), stranger });
    const [lease] = await queue.claim({ now: systemClock.now(), limit: 1, leaseMs: 1000, room: () => 1 });
    assert.equal(lease?.entry.stranger, stranger ? true : undefined);
  }
});
