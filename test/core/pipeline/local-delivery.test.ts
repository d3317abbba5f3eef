import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import type { DeliveryTarget } from '../../../core/pipeline/delivery-target.js';
import type { Spool } from '../../../core/spool/spool.js';
import { openSpool } from '../../../core/spool/file-spool.js';
import { parseAddress } from '../../../core/mime/address.js';
import { PipelineDelivery, PipelineSubmission } from '../../../core/pipeline/submission.js';
import type { Transaction } from '../../../core/pipeline/transaction.js';
import { hold, reject, route } from '../../../core/pipeline/verdict.js';
import { rememberingLog } from '../spool/remembering-log.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { pipelineOf, transactionOf } from './pipeline-fixture.js';

const anna = parseAddress('anna@example.org');
const hop = { target: 'box', destination: 'anna' };
const content = () => Readable.from([Buffer.from('Subject: a\r\n\r\nb\r\n')]);

/** Remembers the transactions and what was read of their messages. */
function box(outcome: 'delivered' | Error = 'delivered') {
  const seen: Transaction[] = [];
  const texts: string[] = [];
  let aborts = 0;
  const target: DeliveryTarget = {
    start: (transaction, recipients) => {
      seen.push(transaction);
      return Promise.resolve({
        body: async (message) => {
          for await (const chunk of message.open()) texts.push(String(chunk));
        },
        commit: () => {
          if (outcome instanceof Error) return Promise.reject(outcome);
          return Promise.resolve(recipients.map((recipient) => ({ recipient, outcome: 'delivered' as const })));
        },
        abort: () => {
          aborts += 1;
          return Promise.resolve();
        },
      });
    },
  };
  return { target, seen, texts, aborts: () => aborts };
}

async function spoolOf(t: Parameters<typeof temporaryFolder>[0]): Promise<Spool> {
  return openSpool(await temporaryFolder(t), { log: rememberingLog().log, reserveBytes: 0 });
}

test('a parcel goes to the target of its hops, byte for byte, as a transaction that may be repeated', async (t) => {
  const { pipeline } = pipelineOf();
  const { target, seen, texts } = box();
  pipeline.deliverTo('site', 'box', target);
  const delivered: string[] = [];
  pipeline.watch('site', 'delivered', ({ recipient }) => delivered.push(recipient.address.address));
  const local = new PipelineDelivery({ pipeline, spool: await spoolOf(t), clock: systemClock });
  const recipients = [{ address: anna, hop }];
  const outcomes = await local.deliver({ id: 'q1', reversePath: anna, recipients, smtputf8: false, content });
  assert.deepEqual(
    outcomes.map(({ outcome }) => outcome),
    ['delivered'],
  );
  assert.equal(texts.join(''), 'Return-Path: <anna@example.org>\r\nSubject: a\r\n\r\nb\r\n');
  assert.deepEqual([seen[0]?.id, seen[0]?.repeatable, seen[0]?.session.internal], ['q1', true, true]);
  await new Promise(setImmediate);
  assert.deepEqual(delivered, ['anna@example.org']);
});

test('a parcel that fails is revoked, and one for an unknown target is refused', async (t) => {
  const { pipeline } = pipelineOf();
  const { target, aborts } = box(new Error('disk'));
  pipeline.deliverTo('site', 'box', target);
  const local = new PipelineDelivery({ pipeline, spool: await spoolOf(t), clock: systemClock });
  const parcel = { id: 'q1', reversePath: null, smtputf8: false, content };
  await assert.rejects(local.deliver({ ...parcel, recipients: [{ address: anna, hop }] }), /disk/);
  assert.equal(aborts(), 1);
  const lost = { target: 'gone', destination: '' };
  await assert.rejects(local.deliver({ ...parcel, recipients: [{ address: anna, hop: lost }] }), {
    problem: 'unavailable',
  });
});

test('a parcel that may not be delivered any more is revoked before its commit', async (t) => {
  const { pipeline } = pipelineOf();
  const { target, seen, texts, aborts } = box(new Error('it is committed'));
  pipeline.deliverTo('site', 'box', target);
  const local = new PipelineDelivery({ pipeline, spool: await spoolOf(t), clock: systemClock });
  const parcel = { id: 'q1', reversePath: null, recipients: [{ address: anna, hop }], smtputf8: false, content };
  const later = [true, false];
  for (const mayCommit of [
    () => false,
    () => Promise.resolve(false),
    () => Promise.reject(new Error('away')),
    () => (later.length === 2 ? Promise.resolve(later.shift() ?? false) : (later.shift() ?? false)),
  ]) {
    const [asked, revoked] = [texts.length, aborts()];
    await assert.rejects(local.deliver({ ...parcel, mayCommit }), { problem: 'conflict' });
    assert.deepEqual([texts.length, aborts()], [asked + 1, revoked + 1]);
    assert.equal(seen.at(-1)?.mayCommit, mayCommit);
  }
});

test('routing asks the routing hooks alone', async (t) => {
  const { pipeline } = pipelineOf();
  pipeline.deliverTo('site', 'box', box().target);
  pipeline.on('site', 'rcptTo', { order: 'policy' }, () => reject(550, '5.7.1', 'No'));
  pipeline.on('site', 'rcptTo', { order: 'route' }, ({ address }) => route({ ...hop, destination: address.address }));
  const local = new PipelineDelivery({ pipeline, spool: await spoolOf(t), clock: systemClock });
  assert.equal((await local.route(transactionOf([]), anna))?.destination, 'anna@example.org');
});

test('a message that a hook holds keeps the hop that its recipients had', async (t) => {
  const { pipeline } = pipelineOf();
  const { target, seen } = box();
  pipeline.deliverTo('site', 'box', box().target);
  pipeline.deliverTo('site', 'hold', target);
  pipeline.on('site', 'rcptTo', { order: 'route' }, () => route(hop));
  pipeline.on('site', 'message', {}, () => hold('looks odd'));
  const clock = systemClock;
  const submission = new PipelineSubmission({
    pipeline,
    spool: await spoolOf(t),
    hostname: 'h',
    clock,
    log: rememberingLog().log,
    longLines: () => 'encode',
  });
  await submission.submit({ username: undefined, reversePath: null, recipients: [anna], content });
  assert.deepEqual(seen[0]?.recipients[0]?.hop, {
    target: 'hold',
    destination: '',
    data: { reason: 'looks odd', plugin: 'site', hop },
  });
});

test('what is handed in with an id, a hop and notes has them', async (t) => {
  const { pipeline } = pipelineOf();
  const { target, seen } = box();
  pipeline.deliverTo('site', 'box', target);
  pipeline.on('site', 'rcptTo', { order: 'route' }, () => reject(550, '5.1.1', 'Nobody'));
  const clock = systemClock;
  const submission = new PipelineSubmission({
    pipeline,
    spool: await spoolOf(t),
    hostname: 'h',
    clock,
    log: rememberingLog().log,
    longLines: () => 'encode',
  });
  const notes = new Map([['site.about', 1]]);
  const { id } = await submission.submit({
    username: undefined,
    reversePath: null,
    recipients: [anna],
    content,
    id: 'q1-1',
    hop: () => hop,
    notes,
  });
  assert.equal(id, 'q1-1');
  assert.deepEqual([seen[0]?.repeatable, seen[0]?.notes.get('site.about'), seen[0]?.session.internal], [true, 1, true]);
});
