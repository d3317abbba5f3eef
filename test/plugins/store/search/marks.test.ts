import assert from 'node:assert/strict';
import { test } from 'node:test';
import { searchWords } from '../../../../plugins/store/cache/row-search.js';
import { marksOf } from '../../../../plugins/store/search/marks.js';

/** The text with brackets around what is marked. */
function marked(text: string, q: string): string {
  const normal = text.normalize('NFC');
  let [out, at] = ['', 0];
  for (const [start, end] of marksOf(normal, searchWords(q))) {
    out += `${normal.slice(at, start)}[${normal.slice(start, end)}]`;
    at = end;
  }
  return out + normal.slice(at);
}

test('every occurrence of every word is marked, whatever its case, as whole characters', () => {
  assert.equal(marked('Invoice of the INVOICE desk', 'invoice'), '[Invoice] of the [INVOICE] desk');
  assert.equal(marked('Das MÄDCHEN', 'mädchen'), 'Das [MÄDCHEN]');
  assert.equal(marked('Cafe\u0301 au lait', 'café'), '[Café] au lait');
  assert.equal(marked('smile 😀 now', '😀'), 'smile [😀] now');
  assert.equal(marked('İstanbul', 'i'), '[İ]stanbul');
  assert.equal(marked('nothing here', 'else'), 'nothing here');
});

test('words that overlap or touch are one mark', () => {
  assert.equal(marked('abcabc', 'ab bc'), '[abcabc]');
  assert.equal(marked('aaaa', 'aa'), '[aaaa]');
  assert.equal(marked('one two', 'two one'), '[one] [two]');
});

test('hostile words are text, and marking them ends soon', () => {
  assert.equal(marked('a.*b (x', '.* (x'), 'a[.*]b [(x]');
  assert.equal(marked('<b>bold</b>', '<b>'), '[<b>]bold</b>');
  const long = 'ab'.repeat(500);
  const began = performance.now();
  assert.equal(
    marked(long, [...new Set(Array.from({ length: 490 }, (_, n) => 'ab'.repeat(n + 1)))].join(' ')),
    `[${long}]`,
  );
  assert.ok(performance.now() - began < 2000);
});

test('words are the parts between blanks, in lower case and normal form, each once', () => {
  assert.deepEqual(searchWords('  Two\ttwo\n ONE '), ['two', 'one']);
  assert.deepEqual(searchWords('Cafe\u0301'), ['café']);
  assert.deepEqual(searchWords(' \u00a0 '), []);
});
