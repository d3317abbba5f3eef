import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { NewEntry } from '../../../../core/contracts/queue-entry.js';
import { headerTexts } from '../../../../plugins/client-queue/queue/envelope.js';
import { acceptEntry } from '../../../../plugins/client-queue/queue/stored-entry.js';
import { mentions } from '../../../../plugins/client-queue/queue/entry-list.js';
import { newEntry, reply } from '../../../kit/relay-queue/entries.js';

const fixture = { intern: (text: string) => text, reasonOf: () => '' };
const entryOf = (wishes: Partial<NewEntry>) =>
  acceptEntry({ envelope: { ...newEntry(0), ...wishes }, traceOffset: 0 }, fixture);

const texts = fc.array(fc.constantFrom('a', 'B', 'é', 'É', '.', '$', '1', '"', '\\', ',', ' ', '\n', '😀', '\u0000'), {
  maxLength: 12,
});
const text = texts.map((pieces) => pieces.join(''));

test('a word is found anywhere in subject and Message-ID, and only there', () => {
  fc.assert(
    fc.property(text, fc.option(text), text, fc.constantFrom(null, 'out'), (subject, internetMessageId, q, route) => {
      fc.pre(q !== '');
      const source = { listener: 'Ab1', user: 'aB', remoteAddress: '1' };
      const entry = entryOf({ uid: 'z', sender: null, subject, internetMessageId, route, source });
      const isThere = [subject, internetMessageId ?? ''].some((one) => one.toLowerCase().includes(q.toLowerCase()));
      const inAddress = 'rcpt@one.example'.includes(q.toLowerCase());
      assert.equal(mentions(q)(entry), isThere || inAddress);
      const [first, second = null] = headerTexts(entry);
      assert.deepEqual(
        [`"${first}"`, second === null ? null : `"${second}"`],
        [subject, internetMessageId].map((one) => (one === null ? null : JSON.stringify(one))),
      );
    }),
    { numRuns: 2000 },
  );
});

test('a word is found in uid, sender, recipient and last reply, whatever its case', () => {
  const said = { ...reply(451, 'Greylisted, try in 300 s', 0), status: '4.7.1' };
  const recipients = [{ address: 'Bob@One.example', destination: 'one.example', lastReply: said }];
  const entry = entryOf({ uid: '0ab-cd', sender: 'Ann@Home.example', recipients });
  for (const q of ['AB-CD', 'ann@h', 'bob@one', 'greyLISTED', 'try in 300', '451 4.7.1 grey', ', try'])
    assert.equal(mentions(q)(entry), true, q);
  for (const q of ['submission', '127.0.0.1', 'smtp', '452', 'nobody']) assert.equal(mentions(q)(entry), false, q);
});
