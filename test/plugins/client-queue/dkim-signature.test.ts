import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, verify } from 'node:crypto';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
import { dkimFields } from '../../../plugins/client-queue/delivery/dkim-signature.js';

const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const ed = generateKeyPairSync('ed25519');
const spki = { type: 'spki', format: 'der' } as const;
const records = new Map([
  ['s1._domainkey.example.org', `v=DKIM1; k=rsa; p=${rsa.publicKey.export(spki).toString('base64')}`],
  ['s2._domainkey.example.org', `v=DKIM1; k=ed25519; p=${ed.publicKey.export(spki).subarray(-32).toString('base64')}`],
]);
const resolver = (name: string) => Promise.resolve([[records.get(name) ?? '']]);

const input = {
  domain: 'example.org',
  keys: [
    { selector: 's1', key: rsa.privateKey },
    { selector: 's2', key: ed.privateKey },
  ],
  fields: new Set(['from', 'to', 'subject']),
  now: new Date(),
};

const chunked = (mail: Buffer, size: number) =>
  Readable.from(
    Array.from({ length: Math.ceil(mail.length / size) }, (_, n) => mail.subarray(n * size, (n + 1) * size)),
  );

const tag = (fields: Buffer, name: string) =>
  new RegExp(`[ ;]${name}=([^;]*)`).exec(fields.toString().replace(/\r\n /g, ''))?.[1];

const head =
  'From: Anna <anna@example.org>\r\nX-Not: signed\r\nTo: ben@example.net,\r\n\tcleo@example.net\r\nSubject:  a \t b \r\n';

describe('a DKIM signature', () => {
  for (const [title, mail] of [
    ['an ordinary message', `${head}\r\nHello\r\n`],
    ['blanks and tabs', `${head}\r\n a  b\t \tc \r\n\t\r\n  \r\nd\t\r\n`],
    ['empty lines around', `${head}\r\n\r\n\r\nHello\r\n\r\n\r\n \r\n`],
    ['no line end at its end', `${head}\r\nHello`],
    ['a body of blanks', `${head}\r\n   \r\n\t\r\n`],
    ['an empty body', `${head}\r\n`],
    ['several fields of a name', `To: a@example.net\r\nTo: b@example.net\r\n${head}\r\nHello\r\n`],
    ['hundreds of recipients', `To: ${'someone@example.net,\r\n '.repeat(900)}x@example.net\r\n${head}\r\nHello\r\n`],
    [
      'many empty lines and bytes of all kinds',
      `${head}\r\n${'\r\n'.repeat(70_000)}\xe4\xff\0 x\r\n${'\r\n'.repeat(70_000)}`,
    ],
  ] as const) {
    test(`of a message with ${title} is good, in one piece or in many`, async () => {
      const bytes = Buffer.from(mail, 'latin1');
      const fields = await dkimFields(bytes, input);
      const { results } = await dkimVerify(Buffer.concat([fields, bytes]), { resolver });
      assert.deepEqual(
        results.map(({ selector, status }) => [selector, status.result]),
        [
          ['s1', 'pass'],
          ['s2', 'pass'],
        ],
      );
      for (const size of [1, 2, 7, 1000].slice(mail.length > 10_000 ? 3 : 0)) {
        assert.equal(String(await dkimFields(chunked(bytes, size), input)), String(fields));
      }
      assert.ok(
        fields
          .toString()
          .split('\r\n')
          .every((line) => line.length <= 100),
      );
    });
  }

  test('has the hash of the example in RFC 8463', async () => {
    const mail =
      'From: Joe SixPack <joe@football.example.com>\r\n\r\nHi.\r\n\r\nWe lost the game.  Are you hungry yet?\r\n\r\nJoe.\r\n';
    assert.equal(tag(await dkimFields(Buffer.from(mail), input), 'bh'), '2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=');
  });

  test('is there without a body as with an empty one', async () => {
    const [without, empty] = await Promise.all([
      dkimFields(Buffer.from(head), input),
      dkimFields(Buffer.from(`${head}\r\n`), input),
    ]);
    assert.equal(String(without), String(empty));
  });

  test('keeps bytes that are no blanks, as those of à in UTF-8', async () => {
    const mail = Buffer.from('From: à b <anna@example.org>\r\n\r\nHello\r\n');
    const [rsaKey] = input.keys;
    const fields = await dkimFields(mail, { ...input, keys: rsaKey === undefined ? [] : [rsaKey] });
    const own = fields.toString('latin1').slice('DKIM-Signature:'.length);
    const unsigned = own
      .replace(/ b=[^]*$/, ' b=')
      .replace(/[\r\n]+/g, '')
      .replace(/ +/g, ' ')
      .trim();
    const data = Buffer.from(
      `from:${Buffer.from('à b <anna@example.org>').toString('latin1')}\r\ndkim-signature:${unsigned}`,
      'latin1',
    );
    const signature = Buffer.from((/ b=([^]*)$/.exec(own)?.[1] ?? '').replace(/\s/g, ''), 'base64');
    assert.ok(verify('sha256', data, rsa.publicKey, signature));
    assert.equal(tag(fields, 'bh'), createHash('sha256').update('Hello\r\n').digest('base64'));
  });

  test('of the largest message does not hold the event loop', async () => {
    const lines = Buffer.from(
      `${head}\r\n${'ordinary words in a row, and more of them in the same line\r\n'.repeat(800_000)}`,
    );
    const delay = monitorEventLoopDelay({ resolution: 5 });
    delay.enable();
    await dkimFields(lines, input);
    delay.disable();
    assert.ok(delay.max / 1e6 < 300, `it stood still for ${delay.max / 1e6} ms`);
  });
});
