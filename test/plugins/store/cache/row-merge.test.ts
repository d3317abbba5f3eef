import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { entryAt, type FolderRows, rowsOf } from '../../../../plugins/store/cache/folder-rows.js';
import { RowBuilder } from '../../../../plugins/store/cache/row-builder.js';
import { mergeRows, noRows, widened } from '../../../../plugins/store/cache/row-merge.js';
import { compareNewestFirst, type MessageEntry } from '../../../../plugins/store/maildir/message-entry.js';
import { readMessageName } from '../../../../plugins/store/maildir/message-name.js';

/** Names in `new` and in `cur`; a silent name is asked for its facts. */
interface Folder {
  readonly new: readonly string[];
  readonly cur: readonly string[];
}

const facts = (name: string) => ({ receivedAt: 1000 + readMessageName(name).id.length, size: 7 });

function rowsIn(folder: Partial<Folder>): FolderRows {
  const builder = new RowBuilder(facts);
  builder.add(folder.new ?? [], false);
  builder.add(folder.cur ?? [], true);
  return builder.finish();
}

/** The plain way: what rows must come to. */
function entriesIn(folder: Folder): readonly MessageEntry[] {
  const byId = new Map<string, MessageEntry>();
  for (const part of ['new', 'cur'] as const) {
    for (const name of folder[part]) {
      const { id, flags, size, receivedAt } = readMessageName(name);
      const asked = size === undefined || receivedAt === undefined ? facts(name) : undefined;
      byId.set(id, {
        id,
        flags,
        file: `${part}/${name}`,
        size: size ?? asked?.size ?? 0,
        receivedAt: receivedAt ?? asked?.receivedAt ?? 0,
      });
    }
  }
  return [...byId.values()].toSorted(compareNewestFirst);
}

const entriesOf = (rows: FolderRows): readonly MessageEntry[] =>
  Array.from({ length: rows.count }, (_, row) => entryAt(rows, row));

const id = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 60 }).map((n) => `${1000 + (n % 20)}.M${n}P1.host,S=${n}`) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 9 }).map((n) => `${1000 + n}.same-second.host,S=1`) },
  { weight: 1, arbitrary: fc.constantFrom('no-time', 'ünïcode-näme', '1003.no-size', '1003.ümlaut,S=4') },
);
const flags = fc.constantFrom('', 'S', 'F', 'FS', 'RST', 'DSab');
const folder: fc.Arbitrary<Folder> = fc.record({
  new: fc.uniqueArray(id, { maxLength: 30 }),
  cur: fc
    .uniqueArray(fc.tuple(id, flags), { maxLength: 60, selector: ([name]) => name })
    .map((names) => names.map(([name, letters]) => `${name}:2,${letters}`)),
});

test('rows are what a plain reading of the names comes to, each message once and newest first', () => {
  fc.assert(
    fc.property(folder, (names) => {
      assert.deepEqual(entriesOf(rowsIn(names)), entriesIn(names));
    }),
  );
});

test('many rows are ordered as few are', () => {
  const names = Array.from({ length: 9000 }, (_, n) => {
    const time = 1_500_000_000 + ((n * 7919) % 4000) * 100_000;
    return `${time}.${n % 3 === 0 ? '' : `M${(n * 31) % 1_000_000}`}P${n}.host,S=1:2,`;
  });
  const found = entriesOf(rowsIn({ cur: names })).map((entry) => entry.id);
  assert.deepEqual(
    found,
    entriesIn({ new: [], cur: names }).map((entry) => entry.id),
  );
});

test('directories that are read again give the same rows as a reading of all of them', () => {
  const reread = fc.record({ new: fc.boolean(), cur: fc.boolean() });
  fc.assert(
    fc.property(folder, folder, reread, fc.nat(40), (before, after, changed, more) => {
      // With many messages that stay, few changes are taken in by another way.
      const filler = Array.from({ length: more * 20 }, (_, n) => `${900 + n}.M${n}P9.host,S=3:2,S`);
      const known = { new: before.new, cur: [...before.cur, ...filler] };
      const again = widened(rowsIn(known), changed);
      const now = {
        new: again.new ? after.new : known.new,
        cur: again.cur ? [...after.cur, ...filler] : known.cur,
      };
      const fresh = rowsIn({ ...(again.new ? { new: now.new } : {}), ...(again.cur ? { cur: now.cur } : {}) });
      assert.deepEqual(entriesOf(mergeRows(rowsIn(known), fresh, again)), entriesIn(now));
    }),
  );
});

test('a message keeps its summary when it gets a flag or moves from new to cur, and takes it along when it goes', () => {
  const before = rowsIn({ new: ['1000.a,S=1'], cur: ['1001.b,S=1:2,', '1002.c,S=1:2,S'] });
  before.summary.set([30, 20, 10]);
  const after = mergeRows(before, rowsIn({ cur: ['1000.a,S=1:2,S', '1001.b,S=1:2,F', '1003.d,S=1:2,'] }), {
    new: true,
    cur: true,
  });
  const summaries = entriesOf(after).map(({ id }, row) => [id, after.summary[row]]);
  assert.deepEqual(summaries, [
    ['1003.d,S=1', 0],
    ['1001.b,S=1', 20],
    ['1000.a,S=1', 10],
  ]);
});

test('names of messages that are gone do not gather', () => {
  let rows = noRows;
  for (let round = 0; round < 50; round++) {
    const names = Array.from({ length: 100 }, (_, n) => `${1000 + n}.M${round}P1.${'x'.repeat(100)},S=1:2,`);
    rows = mergeRows(rows, rowsIn({ cur: names }), { new: false, cur: true });
  }
  assert.equal(rows.count, 100);
  assert.ok(rows.pool.bytes.length < 200_000, `${rows.pool.bytes.length} bytes`);
});

test('merged rows stay as they are when the next reading uses the same buffers', () => {
  const both = { new: true, cur: true };
  const read = (known: FolderRows, names: Folder): FolderRows => {
    const builder = new RowBuilder(facts);
    builder.add(names.new, false);
    builder.add(names.cur, true);
    const merged = mergeRows(known, builder.finish(), both);
    builder.release();
    return merged;
  };
  fc.assert(
    fc.property(folder, folder, (before, after) => {
      const first = read(noRows, before);
      const second = read(first, after);
      assert.deepEqual(entriesOf(first), entriesIn(before));
      assert.deepEqual(entriesOf(second), entriesIn(after));
    }),
  );
});

test('a name that is read again takes no memory again', () => {
  const names = Array.from({ length: 2000 }, (_, n) => `${1000 + n}.M1P1.host,S=1:2,S`);
  const first = mergeRows(noRows, rowsIn({ cur: names }), { new: false, cur: true });
  const second = mergeRows(first, rowsIn({ cur: [...names, '5000.M1P1.host,S=1:2,'] }), { new: false, cur: true });
  assert.equal(second.count, 2001);
  assert.equal(second.pool.used, Buffer.byteLength([...names, '5000.M1P1.host,S=1:2,'].join('')));
});

test('messages are found by their ids, with and without a time in them', () => {
  fc.assert(
    fc.property(folder, (names) => {
      const rows = rowsIn(names);
      const ids = entriesIn(names).map((entry) => entry.id);
      assert.deepEqual(rowsOf(rows, [...ids, '1000.M99P99.host,S=1', 'not-there', '5']), [...ids.keys(), -1, -1, -1]);
    }),
  );
});
