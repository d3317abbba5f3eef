import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CachingResolver } from '../../../core/dns/caching-resolver.js';
import { isDnsFailure } from '../../../core/dns/resolver.js';
import { HandClock } from '../../support/hand-clock.js';
import { FixedResolver, type FixedName } from './fixed-resolver.js';

function cached(names: Record<string, FixedName>, entries = 100) {
  const clock = new HandClock();
  const source = new FixedResolver(names);
  return { clock, source, resolver: new CachingResolver(source, { entries }, clock) };
}

const kindOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'answered',
    (error: unknown) => (isDnsFailure(error) ? error.kind : error),
  );

test('an answer is kept as long as it says, and no longer', async () => {
  const { clock, source, resolver } = cached({ d: { a: ['192.0.2.1'] } });
  source.ttl = 60;
  await resolver.resolve4('d');
  clock.advance(59);
  assert.deepEqual((await resolver.resolve4('D')).records, ['192.0.2.1']);
  assert.equal(source.questions.length, 1);
  clock.advance(1);
  await resolver.resolve4('d');
  assert.equal(source.questions.length, 2);
});

test('huge answers take the places of several, and none at all when there is no room for them', async () => {
  const huge = { txt: ['x'.repeat(40_000)] };
  const small = { txt: ['v=1'] };
  const { source, resolver } = cached({
    a: small,
    b: small,
    c: huge,
    d: huge,
    e: huge,
    f: { txt: ['x'.repeat(200_000)] },
  });
  const ask = async (...names: readonly string[]): Promise<number> => {
    const before = source.questions.length;
    for (const name of names) await resolver.resolveTxt(name);
    return source.questions.length - before;
  };
  assert.equal(await ask('a', 'b', 'c', 'd'), 4);
  assert.equal(await ask('a', 'b', 'c', 'd'), 0);
  await ask('e');
  assert.deepEqual([await ask('e', 'd'), await ask('c')], [0, 1], 'the one that was asked for last goes last');
  assert.equal(await ask('f'), 1);
  assert.equal(await ask('f'), 1);
});

test('times that are too short or too long are bounded, and unknown ones have a value of their own', async () => {
  for (const [ttl, kept] of [
    [0, 5],
    [1_000_000, 3600],
    [undefined, 300],
  ] as const) {
    const { clock, source, resolver } = cached({ d: { mx: [[1, 'mx']] } });
    source.ttl = ttl;
    await resolver.resolveMx('d');
    clock.advance(kept - 1);
    await resolver.resolveMx('d');
    assert.equal(source.questions.length, 1);
    clock.advance(1);
    await resolver.resolveMx('d');
    assert.equal(source.questions.length, 2);
  }
});

test('that there is nothing is kept for a minute, a fault for seconds', async () => {
  for (const [given, kept] of [
    ['nxdomain', 60],
    ['nodata', 60],
    ['servfail', 5],
    ['timeout', 5],
  ] as const) {
    const { clock, source, resolver } = cached({ d: { a: given } });
    source.names['d'] = { a: given };
    assert.equal(await kindOf(resolver.resolve4('d')), given);
    clock.advance(kept - 1);
    assert.equal(await kindOf(resolver.resolve4('d')), given);
    assert.equal(source.questions.length, 1);
    clock.advance(1);
    await kindOf(resolver.resolve4('d'));
    assert.equal(source.questions.length, 2);
  }
});

test('a fresh answer is asked for, and kept', async () => {
  const { source, resolver } = cached({});
  assert.equal(await kindOf(resolver.resolve4('d')), 'nxdomain');
  source.names['d'] = { a: ['192.0.2.1'] };
  assert.equal(await kindOf(resolver.resolve4('d')), 'nxdomain');
  assert.equal(await kindOf(resolver.resolve4('d', { fresh: true })), 'answered');
  assert.equal(await kindOf(resolver.resolve4('d')), 'answered');
  assert.equal(source.questions.length, 2);
});

test('what many ask at once is asked once, and one who leaves leaves alone', async () => {
  const { source, resolver } = cached({ d: { a: ['192.0.2.1'] } });
  const abort = new AbortController();
  const leaving = kindOf(resolver.resolve4('d', { signal: abort.signal }));
  const staying = Array.from({ length: 10 }, () => kindOf(resolver.resolve4('d')));
  abort.abort();
  assert.equal(await leaving, 'aborted');
  assert.deepEqual(new Set(await Promise.all(staying)), new Set(['answered']));
  assert.equal(source.questions.length, 1);
});

test('questions of different types are different questions', async () => {
  const { resolver } = cached({ d: { a: ['192.0.2.1'] } });
  assert.equal(await kindOf(resolver.resolve4('d')), 'answered');
  assert.equal(await kindOf(resolver.resolve6('d')), 'nodata');
  assert.equal(await kindOf(resolver.resolveMx('d')), 'nodata');
});

test('no more is kept than there is room for', async () => {
  const { source, resolver } = cached({}, 10);
  for (let number = 0; number < 50; number += 1) await kindOf(resolver.resolve4(`d${number}`));
  source.questions.length = 0;
  await kindOf(resolver.resolve4('d49'));
  await kindOf(resolver.resolve4('d0'));
  assert.deepEqual(source.questions, ['A d0']);
});
