import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import JSON5 from 'json5';
import { positionsOf, repeatedKeys } from '../../../core/config/positions.js';

suite('positions of keys in JSON5', () => {
  test('positions of keys, elements and nested keys', () => {
    const found = positionsOf(`// a comment with { braces }
{
  hostname: 'mail', /* another: { */ "data": "x",
  smtp: {
    listeners: [
      { port: 25 },
      {
        'na\\'me': "a, b: c", port: +25,
      },
    ],
  },
}`);
    const at = (key: string) => {
      const position = found.get(key);
      return position && `${position.line}:${position.column}`;
    };
    assert.equal(at('hostname'), '3:3');
    assert.equal(at('data'), '3:38');
    assert.equal(at('smtp.listeners'), '5:5');
    assert.equal(at('smtp.listeners.0'), '6:7');
    assert.equal(at('smtp.listeners.0.port'), '6:9');
    assert.equal(at('smtp.listeners.1.port'), '8:30');
    assert.equal(at('smtp.listeners.2'), undefined);
  });

  test('every path of any value is found, however the value is written', () => {
    const key = fc.stringMatching(/^[a-z]{1,6}$/);
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { depthSize: 'small' },
        fc.double({ noNaN: true }),
        fc.string(),
        fc.boolean(),
        fc.constant(null),
        fc.array(tie('value'), { maxLength: 4 }),
        fc.dictionary(key, tie('value'), { maxKeys: 4 }),
      ),
    }));
    fc.assert(
      fc.property(value, fc.constantFrom(undefined, 2), (sample, space) => {
        const found = positionsOf(JSON5.stringify(sample, null, space) ?? 'null');
        assert.deepEqual([...found.keys()].sort(), pathsOf(sample).sort());
        assert.deepEqual(repeatedKeys(JSON5.stringify(sample, null, space) ?? 'null'), []);
      }),
      { numRuns: 300 },
    );
  });

  test('repeated keys are found in every spelling, and nothing else is', () => {
    const told = (text: string) =>
      repeatedKeys(text).map(
        ({ path, position, first }) =>
          `${position.line}:${position.column} ${path.join('.')} as in ${first.line}:${first.column}`,
      );
    assert.deepEqual(
      told(`{ a: { a: 1, b: [{ a: 1 }, { a: 2 }] }, b: { 'a.b': 1, a: { b: 2 } }, /* a: 1, a: 2 */ c: "a: 1, a: 2" }`),
      [],
    );
    assert.deepEqual(
      told(`{
  a: 1, // a: '
  b: { "c d": [0, { x: 1,
    'x': { x: 1 }, "\\x78": 2 }] },
  "\\u0061": 2,
  __proto__: 1, '__proto__': 2,
  a: { a: 1 },
}`),
      [
        '4:5 b.c d.1.x as in 3:21',
        '4:20 b.c d.1.x as in 3:21',
        '5:3 a as in 2:3',
        '6:17 __proto__ as in 6:3',
        '7:3 a as in 2:3',
      ],
    );
  });

  test('a comment ends where the parser says that a line ends', () => {
    for (const end of ['\n', '\r', '\r\n', '\u2028', '\u2029']) {
      const text = `{ // the first: a: 1,${end} a: 1, // a: 1,${end} a: 2 }`;
      assert.deepEqual(JSON5.parse(text), { a: 2 });
      assert.equal(repeatedKeys(text).length, 1, JSON.stringify(end));
    }
  });

  test('a megabyte is searched for repeated keys in about the time of parsing', () => {
    for (const text of [`[${'{},'.repeat(300_000)}]`, `[${'0,'.repeat(500_000)}]`, `{a:"${'x'.repeat(1_000_000)}"}`]) {
      const parsing = timeOf(() => JSON5.parse(text));
      const looking = timeOf(() => assert.deepEqual(repeatedKeys(text), []));
      assert.ok(looking < 3 * parsing + 100, `${looking} ms, parsed in ${parsing} ms`);
    }
  });

  test('a long key with many values is refused quickly', () => {
    const under = (key: string) => `{\n ${key}: [${'0,'.repeat(20_000)}] }`;
    assert.equal(positionsOf(under('k'.repeat(900))).size, 20_001);
    for (const text of [
      under('k'.repeat(20_000)),
      under(`${`${'k'.repeat(200)}: { `.repeat(5)}k: 0,${' }'.repeat(5)}, a`),
    ])
      assert.throws(() => positionsOf(text), new RangeError('too long in its keys in line 2'));
  });

  test('a megabyte of keys is walked in linear time', () => {
    const text = `{${Array.from({ length: 60_000 }, (_, index) => `k${index}: {a: [1]},\n`).join('')}}`;
    assert.equal(positionsOf(text).size, 180_000);
    assert.deepEqual(repeatedKeys(text), []);
  });
});

/** The best of three. */
function timeOf(work: () => void): number {
  const times = [1, 2, 3].map(() => {
    const began = performance.now();
    work();
    return performance.now() - began;
  });
  return Math.round(Math.min(...times));
}

function pathsOf(value: unknown, path = ''): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, below]) => {
    const key = path === '' ? name : `${path}.${name}`;
    return [key, ...pathsOf(below, key)];
  });
}
