import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { markBytes, recordHeader, scanRecords } from '../../../core/spool/segments.js';

const mark = Buffer.from('a mark!!');
const start = 32;

interface Written {
  readonly number: number;
  readonly kind: number;
  readonly payload: Buffer;
}

/** A segment of records that were acknowledged one after the other, followed by older content of the file. */
function segmentOf(records: readonly Written[], tail: Buffer = Buffer.alloc(0)): Buffer {
  const parts: Buffer[] = [Buffer.alloc(start)];
  for (const { number, kind, payload } of records) {
    parts.push(recordHeader({ mark, number, kind, acknowledged: number - 1, payload: [payload] }), payload);
  }
  return Buffer.concat([...parts, tail]);
}

const read = (bytes: Buffer, first = 1) => scanRecords(bytes, start, mark, first);
const numbered = (payloads: readonly Buffer[], first = 1): Written[] =>
  payloads.map((payload, index) => ({ number: first + index, kind: 1 + (index % 200), payload }));
const payloads = fc.array(
  fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  { maxLength: 20 },
);

test('records are read as written, whatever follows them', () => {
  fc.assert(
    fc.property(
      payloads,
      fc.uint8Array({ maxLength: 500 }),
      fc.integer({ min: 1, max: 2 ** 40 }),
      (list, tail, first) => {
        const records = numbered(list, first);
        const scanned = read(segmentOf(records, Buffer.from(tail)), first);
        assert.deepEqual(
          scanned.records.map(({ number, kind, payload }) => ({ number, kind, payload })),
          records,
        );
        assert.deepEqual(scanned.gaps, []);
      },
    ),
  );
});

test('a torn tail ends the records and is not damage', () => {
  fc.assert(
    fc.property(payloads, fc.nat(), fc.boolean(), (list, at, zeros) => {
      const bytes = segmentOf(numbered(list));
      const cut = start + (at % (bytes.length - start + 1));
      const torn = Buffer.concat([bytes.subarray(0, cut), zeros ? Buffer.alloc(bytes.length - cut) : randomBytes(100)]);
      const { records, gaps } = read(torn);
      let end = start;
      const whole = numbered(list).filter(({ payload }) => (end += 32 + payload.length) <= cut);
      // A payload that ends in zeros is complete even when its last bytes are cut off.
      assert.ok(records.length >= whole.length);
      assert.deepEqual(
        records.map(({ payload }) => payload).slice(0, whole.length),
        whole.map(({ payload }) => payload),
      );
      assert.deepEqual(gaps, []);
    }),
  );
});

test('a byte that changed in an acknowledged record is damage, and the others are still read', () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ minLength: 1, maxLength: 90 }), { minLength: 2, maxLength: 9 }),
      fc.nat(),
      fc.integer({ min: 1, max: 255 }),
      (list, at, flip) => {
        const records = numbered(list.map((bytes) => Buffer.from(bytes)));
        const bytes = segmentOf(records);
        const lastStart = bytes.length - 32 - (records.at(-1)?.payload.length ?? 0);
        const hit = start + (at % (lastStart - start));
        bytes[hit] = (bytes[hit] ?? 0) ^ flip;
        const { records: found, gaps } = read(bytes);
        assert.equal(found.length, records.length - 1);
        assert.equal(gaps.length, 1);
        assert.ok(!found.some(({ number }) => number === gaps[0]?.from && number === gaps[0].to));
        for (const { number, payload } of found) assert.deepEqual(payload, records[number - 1]?.payload);
      },
    ),
  );
});

test('records of an earlier segment in the file are not read, even with matching numbers', () => {
  const old = recordHeader({ mark: Buffer.from('old mark'), number: 3, kind: 1, acknowledged: 2, payload: [] });
  const { records, gaps } = read(segmentOf(numbered([Buffer.from('a'), Buffer.from('b')]), old));
  assert.deepEqual([records.length, gaps], [2, []]);
});

test('a valid record after an unreadable one is read, and the loss is reported', () => {
  const [one, two, three] = [1, 2, 3].map((number) =>
    Buffer.concat([
      recordHeader({ mark, number, kind: 1, acknowledged: 0, payload: [Buffer.from('x')] }),
      Buffer.from('x'),
    ]),
  );
  assert.ok(one !== undefined && two !== undefined && three !== undefined);
  two.fill(0);
  const { records, gaps } = read(Buffer.concat([Buffer.alloc(start), one, two, three]));
  assert.deepEqual([records.map(({ number }) => number), gaps], [[1, 3], [{ from: 2, to: 2 }]]);
});

test('bytes of a message are never taken for a record', () => {
  const forged = Buffer.concat([
    recordHeader({
      mark: Buffer.alloc(markBytes),
      number: 2,
      kind: 1,
      acknowledged: 9,
      payload: [Buffer.from('mine')],
    }),
    Buffer.from('mine'),
  ]);
  const bytes = segmentOf(numbered([Buffer.from('a'), forged]));
  const { records, gaps } = read(bytes.subarray(0, bytes.length - 1));
  assert.deepEqual([records.length, gaps], [1, []]);
});
