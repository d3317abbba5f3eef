import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, test } from 'node:test';
import type { Decision } from '../../../core/smtp/chain.js';
import { type Stage } from '../../../core/smtp/hook.js';
import type { Pipeline } from '../../../core/smtp/pipeline.js';
import { next, reject } from '../../../core/smtp/verdict.js';
import { isStartError } from '../../../core/start-error.js';
import { brief, decideAt, hook, inputs, pipelineOf, session, target, type Answer } from './pipeline-ground.js';

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

  test('is told later, with what happened', async () => {
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

  test('that throws or rejects is logged and disturbs nobody', async () => {
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
});
