import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, test } from 'node:test';
import { parseAddress } from '../../../core/mime/address.js';
import type { Decision } from '../../../core/pipeline/transaction-pipeline.js';
import type { Pipeline } from '../../../core/pipeline/pipeline.js';
import { next, reject, type Stage } from '../../../core/pipeline/verdict.js';
import { isStartError } from '../../../core/problem.js';
import { brief, decideAt, hook, inputs, pipelineOf, session, target, type Answer } from './pipeline-fixture.js';

describe('a registration', () => {
  for (const [why, register] of [
    ['an unknown stage', (p: Pipeline) => hook(p, 'rcpt' as Stage, next)],
    ['a stage named as a method of all objects', (p: Pipeline) => hook(p, 'toString' as Stage, next)],
    ['an unknown phase', (p: Pipeline) => hook(p, 'rcptTo', next, { order: 'early' as 'first' })],
    ['no time', (p: Pipeline) => hook(p, 'rcptTo', next, { timeLimitMs: 0 })],
    ['endless time', (p: Pipeline) => hook(p, 'rcptTo', next, { timeLimitMs: Infinity })],
    ['no function', (p: Pipeline) => hook(p, 'rcptTo', 'next' as unknown as Answer)],
    ['an unknown event', (p: Pipeline) => p.watch('site', 'opened' as 'closed', () => undefined)],
  ] as const) {
    test(`with ${why} is a start error that names the plugin`, () => {
      assert.throws(
        () => register(pipelineOf().pipeline),
        (error) => isStartError(error) && error.message.includes('site'),
      );
    });
  }

  test('of a second target of the same name is refused until the first is gone', () => {
    const { pipeline } = pipelineOf();
    const undo = pipeline.deliverTo('one', 'mailbox', target);
    assert.throws(() => pipeline.deliverTo('two', 'mailbox', target), /one and two/);
    undo();
    const again = pipeline.deliverTo('two', 'mailbox', target);
    undo();
    assert.throws(() => pipeline.deliverTo('three', 'mailbox', target), /two and three/);
    again();
  });

  test('leaves the chain of those who have begun as it was', () => {
    const { pipeline } = pipelineOf();
    const undo = hook(pipeline, 'connect', () => reject(554, '5.0.0', 'No'));
    const chain = pipeline.snapshot();
    assert.equal(pipeline.snapshot(), chain);
    undo();
    assert.notEqual(pipeline.snapshot(), chain);
    assert.equal(brief(chain.decide('connect', inputs.connect) as Decision), '554 5.0.0');
    assert.equal(brief(decideAt(pipeline, 'connect') as Decision), 'pass');
  });
});

describe('a watcher', () => {
  const closed = { session, ms: 1, messages: 0 };

  test('is emitted later, with the outcome', async () => {
    const { pipeline } = pipelineOf();
    const seen: unknown[] = [];
    const undo = pipeline.watch('site', 'closed', (event) => seen.push(event));
    pipeline.snapshot().emit('closed', closed);
    assert.deepEqual(seen, []);
    await turn();
    assert.deepEqual(seen, [closed]);
    undo();
    pipeline.snapshot().emit('closed', closed);
    await turn();
    assert.equal(seen.length, 1);
  });

  test('that throws or rejects is logged and affects no other', async () => {
    const { pipeline, lines } = pipelineOf();
    let seen = 0;
    const failsLater: unknown = () => Promise.reject(new Error('oops'));
    pipeline.watch('one', 'closed', () => {
      throw new Error('oops');
    });
    pipeline.watch('two', 'closed', failsLater as () => void);
    pipeline.watch('three', 'closed', () => {
      seen += 1;
    });
    pipeline.snapshot().emit('closed', closed);
    await turn();
    assert.equal(seen, 1);
    assert.deepEqual(
      lines.map(({ fields }) => fields['plugin']),
      ['one', 'two'],
    );
  });

  test('that leaves a thousand promises unsettled misses what follows, until half of them are settled', async () => {
    const { pipeline, lines } = pipelineOf();
    let told = 0;
    const settle: (() => void)[] = [];
    const slow: unknown = () => {
      told += 1;
      return new Promise<void>((resolve) => settle.push(resolve));
    };
    pipeline.watch('slow', 'closed', slow as () => void);
    for (let n = 0; n < 1010; n += 1) pipeline.snapshot().emit('closed', closed);
    await turn();
    assert.equal(told, 1000);
    for (const resolve of settle.splice(0, 500)) resolve();
    await turn();
    pipeline.snapshot().emit('closed', closed);
    await turn();
    assert.equal(told, 1001);
    assert.deepEqual(
      lines.map(({ fields }) => [fields['plugin'], fields['event'], fields['missed']]),
      [
        ['slow', 'closed', undefined],
        ['slow', 'closed', 10],
      ],
    );
  });
});

describe('an outcome', () => {
  const outcome = {
    id: 'id1',
    reversePath: null,
    recipient: parseAddress('bob@example.org'),
    status: 'delivered',
    reply: null,
    attempts: 1,
    nextAttemptAt: null,
    at: 0,
    target: 'relay',
  } as const;

  test('is made only when there is a watcher, and emitted later', async () => {
    const { pipeline } = pipelineOf();
    let made = 0;
    const make = () => {
      made += 1;
      return outcome;
    };
    pipeline.emitOutcome('queue', make);
    const seen: unknown[] = [];
    pipeline.watch('site', 'outcome', (event) => seen.push(event));
    pipeline.emitOutcome('queue', make);
    assert.deepEqual([made, seen], [1, []]);
    await turn();
    assert.deepEqual(seen, [outcome]);
  });

  test('that cannot be made is logged', () => {
    const { pipeline, lines } = pipelineOf();
    pipeline.watch('site', 'outcome', () => undefined);
    pipeline.emitOutcome('queue', () => {
      throw new Error('oops');
    });
    assert.deepEqual(
      lines.map(({ fields }) => fields['plugin']),
      ['queue'],
    );
  });
});
