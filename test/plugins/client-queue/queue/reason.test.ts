import assert from 'node:assert/strict';
import { test } from 'node:test';
import { normalReason } from '../../../../plugins/client-queue/queue/queued-entry.js';

const of = (text: string): string => normalReason({ code: 451, status: '4.7.1', text });

test('replies that differ in addresses, networks, ids and numbers have one reason', () => {
  const groups = [
    [
      '4.7.1 <ann@one.example>: Greylisted, try again in 300 s',
      '4.7.1 <bob@two.example>: Greylisted, try again in 17 s',
    ],
    ['host [192.0.2.1] is full', 'host [198.51.100.77] is full'],
    ['from [IPv6:2001:db8::1] refused', 'from [IPv6:2001:db8:0:1::25] refused'],
    ['queued as 4bCd9F1x2', 'queued as 77aB9cDe0'],
    ['see https://help.example/a?b=1 for more', 'see https://help.example/other for more'],
    ['request 01234567-89ab-cdef-0123-456789abcdef failed', 'request aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee failed'],
    ['load is 12.5, limit 10', 'load is 9.75, limit 10'],
    ['too   many\tconnections', 'too many connections'],
  ];
  for (const [one = '', other = ''] of groups) assert.equal(of(one), of(other));
  assert.equal(new Set(groups.map(([one = '']) => of(one))).size, groups.length);
});

test('code and status stay, and words stay', () => {
  assert.equal(of('4.7.1 Mailbox is over quota'), '451 4.7.1 Mailbox is over quota');
  assert.notEqual(of('no'), normalReason({ code: 452, status: '4.7.1', text: 'no' }));
  assert.notEqual(of('no'), normalReason({ code: 451, status: '4.2.2', text: 'no' }));
});

test('the longest reply of the worst kind takes no time to speak of', () => {
  for (const piece of ['a1', '@', 'a@', '1.', ':', '-1', 'https://', '[', 'f:', '0a-']) {
    assert.ok(of(piece.repeat(100_000)).length <= 160);
  }
});
