import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { problem } from '../../../core/problem.js';
import type { Decision } from '../../../core/pipeline/transaction-pipeline.js';
import {
  accept,
  change,
  defer,
  discard,
  hold,
  next,
  reject,
  route,
  type Stage,
  stages,
} from '../../../core/pipeline/verdict.js';
import { brief, decideAt, here, hook, pipelineOf, withTargets, type Answer } from './pipeline-fixture.js';

describe('each verdict in each stage', () => {
  const always = '451 4.3.0';
  const silent: Record<Stage, string> = {
    connect: 'pass',
    ehlo: 'pass',
    auth: '535 5.7.8',
    mailFrom: 'pass',
    rcptTo: '550 5.7.1',
    message: 'pass',
    deliver: 'pass',
    attempt: 'pass',
  };
  const only =
    (...some: readonly Stage[]) =>
    (outcome: string) =>
      Object.fromEntries(stages.map((stage) => [stage, some.includes(stage) ? outcome : always])) as Record<
        Stage,
        string
      >;
  const everywhere = (outcome: string) => only(...stages)(outcome);

  const table: readonly (readonly [name: string, answer: Answer, outcomes: Record<Stage, string>])[] = [
    ['next', () => next(), silent],
    ['accept', () => accept(), { ...silent, auth: always }],
    [
      'accept with a user',
      () => accept({ username: 'anna@example.com' }),
      { ...silent, auth: 'pass anna@example.com' },
    ],
    ['reject', () => reject(550, '5.7.1', 'No'), everywhere('550 5.7.1')],
    ['defer', () => defer(450, '4.7.1', 'Later'), everywhere('450 4.7.1')],
    ['discard', () => discard('spam'), only('rcptTo', 'message', 'deliver')('discard')],
    ['hold', () => hold('odd'), only('rcptTo', 'message', 'deliver', 'attempt')('pass hold')],
    ['route', () => route(here), only('rcptTo')('pass mailbox')],
    ['change', () => change(), only('message')('pass')],
    [
      'a throw',
      () => {
        throw new Error('oops');
      },
      everywhere(always),
    ],
    ['a rejection', () => Promise.reject(new Error('oops')), everywhere(always)],
    ['nothing', () => undefined, everywhere(always)],
    ['true', () => true, everywhere(always)],
    ['a verdict without its brand', () => ({ kind: 'next' }), everywhere(always)],
    ['an unknown verdict', () => ({ postern: 'verdict', kind: 'maybe' }), everywhere(always)],
    [
      'a verdict named as a method of all objects',
      () => ({ postern: 'verdict', kind: 'toString' }),
      everywhere(always),
    ],
    [
      'a verdict that cannot be read',
      () => ({
        postern: 'verdict',
        get kind() {
          throw new Error('oops');
        },
      }),
      everywhere(always),
    ],
    ['a reject with a code that is temporary', () => reject(450, '5.7.1', 'No'), everywhere(always)],
    ['a reject with a status that is temporary', () => reject(550, '4.7.1', 'No'), everywhere(always)],
    ['a reject with 250', () => reject(250, '2.0.0', 'Ok'), everywhere(always)],
    ['a reject with 600', () => reject(600, '5.0.0', 'No'), everywhere(always)],
    ['a reject with half a code', () => reject(550.5, '5.0.0', 'No'), everywhere(always)],
    ['a reject with two lines', () => reject(550, '5.0.0', 'No\r\n250 Ok'), everywhere(always)],
    ['a reject without a text', () => reject(550, '5.0.0', ''), everywhere(always)],
    ['a reject with a long text', () => reject(550, '5.0.0', 'x'.repeat(401)), everywhere(always)],
    ['a reject with a text of a bidi mark', () => reject(550, '5.0.0', 'N\u202eo'), everywhere(always)],
    ['a defer that is permanent', () => defer(550, '5.0.0', 'No'), everywhere(always)],
    ['a route without a hop', () => ({ postern: 'verdict', kind: 'route' }), everywhere(always)],
    ['a route to a target that is not there', () => route({ target: 'gone', destination: '' }), everywhere(always)],
    ['a route with a no', () => route(here, { reply: { code: 550, status: null, lines: ['No'] } }), everywhere(always)],
    ['a route with no words', () => route(here, { reply: { code: 250, status: null, lines: [] } }), everywhere(always)],
    ['an accept without a name', () => accept({ username: '' }), { ...silent, auth: always }],
    [
      'a problem of the peer',
      () => {
        throw problem('forbidden', 'Not you');
      },
      everywhere('550 5.7.1'),
    ],
    [
      'a problem of the disk',
      () => {
        throw problem('storage-full');
      },
      everywhere('452 4.3.1'),
    ],
    [
      'a problem with two lines',
      () => {
        throw problem('forbidden', 'No\r\n250 Ok');
      },
      everywhere(always),
    ],
  ];

  for (const [name, answer, outcomes] of table) {
    for (const stage of stages) {
      test(`${name} in ${stage} means ${outcomes[stage]}, at once and as a promise`, async () => {
        const { pipeline } = withTargets('mailbox', 'hold');
        hook(pipeline, stage, answer);
        const later = withTargets('mailbox', 'hold').pipeline;
        hook(later, stage, () => new Promise((resolve) => resolve(answer())));
        assert.equal(brief(await decideAt(pipeline, stage)), outcomes[stage]);
        assert.equal(brief(await decideAt(later, stage)), outcomes[stage]);
      });
    }
  }

  test('hold without a target named hold is 451', async () => {
    for (const stage of ['rcptTo', 'message', 'deliver'] as const) {
      const { pipeline, lines } = withTargets('mailbox');
      hook(pipeline, stage, () => hold('odd'));
      assert.equal(brief(await decideAt(pipeline, stage)), always);
      assert.match(String(lines[0]?.fields['why']), /hold/);
    }
  });

  test('a verdict of another copy of the kit works', () => {
    const { pipeline } = pipelineOf();
    hook(pipeline, 'connect', () =>
      JSON.parse('{"postern":"verdict","kind":"reject","code":554,"status":"5.7.1","text":"No"}'),
    );
    assert.equal(brief(decideAt(pipeline, 'connect') as Decision), '554 5.7.1');
  });

  test('a text beyond ASCII is made ASCII, for replies are', () => {
    const { pipeline } = pipelineOf();
    hook(pipeline, 'connect', () => reject(554, '5.7.1', 'Zurück – nein'));
    const decision = decideAt(pipeline, 'connect') as Decision;
    assert.deepEqual(decision.outcome === 'refuse' && decision.reply.lines, ['Zur?ck ? nein']);
  });

  test('a change that would break the header is a failure', () => {
    for (const bad of [
      { change: 'add-header', name: 'X:Y', value: 'v' },
      { change: 'add-header', name: 'X Y', value: 'v' },
      { change: 'add-header', name: '', value: 'v' },
      { change: 'add-header', name: 'X', value: 'v\r\nBcc: evil@example.com' },
      { change: 'add-header', name: 'X', value: 'a\0b' },
      { change: 'remove-header', name: 'X\r\n' },
      { change: 'add-recipient', address: 'to@example.com' },
      { change: 'rename' },
      null,
    ]) {
      const { pipeline } = pipelineOf();
      hook(pipeline, 'message', () => ({ postern: 'verdict', kind: 'change', changes: [bad] }));
      assert.equal(brief(decideAt(pipeline, 'message') as Decision), always, JSON.stringify(bad));
    }
  });
});
