import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, mock, test } from 'node:test';
import { problem } from '../../../core/problem.js';
import type { Decision } from '../../../core/pipeline/transaction-pipeline.js';
import { accept, defer, hold, next, reject, route, type Verdict } from '../../../core/pipeline/verdict.js';
import { brief, decideAt, elsewhere, here, hook, pipelineOf, withTargets } from './pipeline-fixture.js';

describe('hooks together', () => {
  test('accept skips the rest of its phase, and a later phase may still refuse', () => {
    const { pipeline } = pipelineOf();
    hook(pipeline, 'mailFrom', accept, { order: 'first' });
    hook(pipeline, 'mailFrom', () => reject(550, '5.0.0', 'not asked'), { order: 'first' });
    assert.equal(brief(decideAt(pipeline, 'mailFrom') as Decision), 'pass');
    hook(pipeline, 'mailFrom', () => reject(550, '5.7.1', 'asked'), { order: 'last' });
    assert.equal(brief(decideAt(pipeline, 'mailFrom') as Decision), '550 5.7.1');
  });

  test('a refusal ends the stage and names its plugin', () => {
    const { pipeline } = pipelineOf();
    hook(pipeline, 'ehlo', () => defer(450, '4.0.0', 'Later'), {}, 'greylist');
    hook(pipeline, 'ehlo', () => assert.fail('asked'), { order: 'last' });
    const decision = decideAt(pipeline, 'ehlo') as Decision;
    assert.equal(decision.outcome === 'refuse' && decision.plugin, 'greylist');
  });

  test('the first route counts, phase route is not asked any more, all others are', () => {
    const { pipeline } = withTargets('mailbox', 'relay');
    const names: string[] = [];
    const note = (name: string, verdict: Verdict) => () => {
      names.push(name);
      return verdict;
    };
    hook(pipeline, 'rcptTo', note('policy', route(here)));
    hook(pipeline, 'rcptTo', note('policy 2', route(elsewhere)));
    hook(pipeline, 'rcptTo', note('content', next()), { order: 'content' });
    hook(pipeline, 'rcptTo', note('route', reject(550, '5.1.1', 'Unknown')), { order: 'route' });
    hook(pipeline, 'rcptTo', note('last', next()), { order: 'last' });
    assert.equal(brief(decideAt(pipeline, 'rcptTo') as Decision), 'pass mailbox');
    assert.deepEqual(names, ['policy', 'policy 2', 'content', 'last']);
  });

  test('a recipient goes where a hook of phase route says', () => {
    const { pipeline } = withTargets('mailbox');
    hook(pipeline, 'rcptTo', next, { order: 'route' });
    hook(pipeline, 'rcptTo', () => route(here), { order: 'route' });
    assert.equal(brief(decideAt(pipeline, 'rcptTo') as Decision), 'pass mailbox');
  });

  test('a hook of phase last refuses a recipient that has its route', () => {
    const { pipeline } = withTargets('mailbox');
    hook(pipeline, 'rcptTo', () => route(here), { order: 'route' });
    hook(pipeline, 'rcptTo', () => reject(550, '5.7.1', 'No'), { order: 'last' });
    assert.equal(brief(decideAt(pipeline, 'rcptTo') as Decision), '550 5.7.1');
  });

  test('a hold wins over a route', () => {
    const { pipeline } = withTargets('mailbox', 'hold');
    hook(pipeline, 'rcptTo', () => route(here), { order: 'route' });
    hook(pipeline, 'rcptTo', () => hold('odd'), { order: 'last' });
    assert.equal(brief(decideAt(pipeline, 'rcptTo') as Decision), 'pass hold');
  });

  test('the first who signs a user in names the user', () => {
    const { pipeline } = pipelineOf();
    hook(pipeline, 'auth', () => accept({ username: 'anna' }));
    hook(pipeline, 'auth', () => accept({ username: 'root' }), { order: 'last' });
    assert.equal(brief(decideAt(pipeline, 'auth') as Decision), 'pass anna');
  });

  test('that answer at once are decided at once', () => {
    const { pipeline } = pipelineOf();
    hook(pipeline, 'connect', next);
    hook(pipeline, 'connect', accept);
    assert.ok(!(decideAt(pipeline, 'connect') instanceof Promise));
  });

  test('that answer later are asked one after the other', async () => {
    const { pipeline } = pipelineOf();
    const names: string[] = [];
    for (const name of ['a', 'b']) {
      hook(pipeline, 'connect', async () => {
        names.push(`${name} begins`);
        await turn();
        names.push(`${name} ends`);
        return next();
      });
    }
    await decideAt(pipeline, 'connect');
    assert.deepEqual(names, ['a begins', 'a ends', 'b begins', 'b ends']);
  });
});

describe('a hook that fails', () => {
  test('is named in the log with its stage and cause, and counted', async () => {
    const { pipeline, lines } = pipelineOf();
    const cause = new Error('oops');
    hook(pipeline, 'rcptTo', () => Promise.reject(cause), {}, 'broken');
    await decideAt(pipeline, 'rcptTo');
    await decideAt(pipeline, 'rcptTo');
    const [line] = lines;
    assert.equal(line?.level, 'error');
    assert.deepEqual(
      {
        plugin: line?.fields['plugin'],
        stage: line?.fields['stage'],
        err: line?.fields['err'],
        session: line?.fields['session'],
      },
      { plugin: 'broken', stage: 'rcptTo', err: cause, session: 'session1' },
    );
    const [description] = pipeline.describe();
    assert.deepEqual([description?.calls, description?.failures], [2, 2]);
  });

  test('differs from a refusal by its problem', () => {
    const { pipeline, lines } = pipelineOf();
    hook(pipeline, 'rcptTo', () => {
      throw problem('forbidden');
    });
    void decideAt(pipeline, 'rcptTo');
    assert.deepEqual(lines, []);
    assert.equal(pipeline.describe()[0]?.failures, 0);
  });

  test('by taking too long is 451 at its limit; what it says later is ignored and logged', async () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      const { pipeline, lines, clock } = pipelineOf();
      let answer: (verdict: Verdict) => void = () => assert.fail('not asked');
      hook(
        pipeline,
        'mailFrom',
        () =>
          new Promise<Verdict>((resolve) => {
            answer = resolve;
          }),
        { timeLimitMs: 200 },
      );
      const deciding = decideAt(pipeline, 'mailFrom');
      mock.timers.tick(199);
      await turn();
      assert.equal(lines.length, 0);
      mock.timers.tick(1);
      assert.equal(brief(await deciding), '451 4.3.0');
      clock.advance(3);
      answer(next());
      await turn();
      assert.deepEqual(
        lines.map(({ level, text }) => [level, text]),
        [
          ['error', 'a hook failed'],
          ['warn', 'a hook answered too late; the answer was ignored'],
        ],
      );
      assert.equal(lines[1]?.fields['ms'], 3000);
    } finally {
      mock.timers.reset();
    }
  });

  test('has the limit of the pipeline if it names none', async () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      const { pipeline } = pipelineOf(700);
      hook(pipeline, 'mailFrom', () => new Promise(() => undefined));
      assert.equal(pipeline.describe()[0]?.timeLimitMs, 700);
      const deciding = decideAt(pipeline, 'mailFrom');
      mock.timers.tick(700);
      assert.equal(brief(await deciding), '451 4.3.0');
    } finally {
      mock.timers.reset();
    }
  });
});
