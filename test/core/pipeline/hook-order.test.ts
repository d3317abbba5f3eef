import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type HookOptions } from '../../../core/pipeline/hook.js';
import { next } from '../../../core/pipeline/verdict.js';
import { isStartError } from '../../../core/problem.js';
import { decideAt, hook, pipelineOf } from './pipeline-fixture.js';

describe('the order of hooks', () => {
  /** Who was asked, in order. */
  function asked(places: readonly (readonly [plugin: string, options: HookOptions])[]): readonly string[] {
    const { pipeline } = pipelineOf();
    const names: string[] = [];
    for (const [plugin, options] of places) {
      pipeline.on(plugin, 'mailFrom', options, () => {
        names.push(plugin);
        return next();
      });
    }
    void decideAt(pipeline, 'mailFrom');
    assert.deepEqual(
      names,
      pipeline.describe().map((hook) => hook.plugin),
    );
    return names;
  }

  test('is that of phases, policy if none is named, then of registration', () => {
    const places = [
      ['e', { order: 'last' }],
      ['d', { order: 'route' }],
      ['c', { order: 'content' }],
      ['b', {}],
      ['b2', { order: 'policy' }],
      ['a', { order: 'first' }],
    ] as const;
    assert.deepEqual(asked(places), ['a', 'b', 'b2', 'c', 'd', 'e']);
  });

  test("within a phase after: '*' is behind all others, and as before and after say among those", () => {
    const places = [
      ['users', { after: '*' }],
      ['queue', { before: 'users', after: '*' }],
      ['site', {}],
      ['behind', { after: 'queue' }],
    ] as const;
    assert.deepEqual(asked(places), ['site', 'queue', 'behind', 'users']);
  });

  test('within a phase is as before and after say, and does not care for plugins that are not there', () => {
    assert.deepEqual(
      asked([
        ['a', { after: 'c' }],
        ['b', { after: 'gone' }],
        ['c', {}],
      ]),
      ['b', 'c', 'a'],
    );
    assert.deepEqual(
      asked([
        ['a', {}],
        ['b', {}],
        ['c', { before: 'a' }],
      ]),
      ['b', 'c', 'a'],
    );
    assert.deepEqual(
      asked([
        ['a', {}],
        ['b', {}],
        ['c', {}],
        ['d', { before: ['c', 'b', 'gone'] }],
        ['e', { after: ['f', 'd'] }],
        ['f', {}],
      ]),
      ['a', 'd', 'b', 'c', 'f', 'e'],
    );
    assert.deepEqual(
      asked([
        ['a', { order: 'last', before: 'b' }],
        ['b', {}],
      ]),
      ['b', 'a'],
    );
  });

  test('in a circle is refused, with the names of those in it, and nothing is registered', () => {
    const { pipeline } = pipelineOf();
    hook(pipeline, 'rcptTo', next, {}, 'bystander');
    hook(pipeline, 'rcptTo', next, { before: 'two' }, 'one');
    assert.throws(
      () => hook(pipeline, 'rcptTo', next, { before: 'one' }, 'two'),
      (error) =>
        isStartError(error) &&
        /\bone\b/.test(error.message) &&
        /\btwo\b/.test(error.message) &&
        !/bystander/.test(error.message),
    );
    assert.deepEqual(
      pipeline.describe().map((one) => one.plugin),
      ['bystander', 'one'],
    );
  });

  test('in a circle of three names all three', () => {
    const { pipeline } = pipelineOf();
    hook(pipeline, 'rcptTo', next, { after: 'c' }, 'a');
    hook(pipeline, 'rcptTo', next, { after: 'a' }, 'b');
    assert.throws(() => hook(pipeline, 'rcptTo', next, { after: 'b' }, 'c'), /a, .*c|a.*b.*c|c.*b/);
  });

  test('is kept by a plugin that registers anew', () => {
    const { pipeline } = pipelineOf();
    const undo = hook(pipeline, 'connect', next, {}, 'a');
    hook(pipeline, 'connect', next, {}, 'b');
    undo();
    hook(pipeline, 'connect', next, {}, 'a');
    assert.deepEqual(
      pipeline.describe().map((one) => one.plugin),
      ['a', 'b'],
    );
  });
});
