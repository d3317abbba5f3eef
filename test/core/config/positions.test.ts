import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import JSON5 from 'json5';
import { positionsOf } from '../../../core/config/positions.js';

suite('positions of keys in JSON5', () => {
  test('keys, elements and nested keys stand where they are written', () => {
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
      }),
      { numRuns: 300 },
    );
  });

  test('a megabyte of keys is walked in linear time', () => {
    const text = `{${Array.from({ length: 60_000 }, (_, index) => `k${index}: {a: [1]},\n`).join('')}}`;
    assert.equal(positionsOf(text).size, 180_000);
  });
});

function pathsOf(value: unknown, path = ''): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, below]) => {
    const key = path === '' ? name : `${path}.${name}`;
    return [key, ...pathsOf(below, key)];
  });
}
