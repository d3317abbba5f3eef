import assert from 'node:assert/strict';
import { mkdtempSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { simpleParser } from 'mailparser';
import { isProblem } from '../../../../core/problem.js';
import { CaseFiles, messageOf } from '../../../../plugins/client-queue/case/transactions.js';
import {
  CaseDefinition,
  CaseEnvelope,
  variablesOf,
  withVariables,
} from '../../../../plugins/client-queue/case/definition.js';
import { requestOfCase } from '../../../../plugins/client-queue/case/sending.js';

const now = new Date('2026-11-21T03:04:05Z');
const envelope = { mail: 'ann@example.org', rcpt: ['bob@example.net'] };
const fixture = { files: new CaseFiles(undefined, 1000), hostname: 'mx.example.com', now: () => now };

const read = (more: object) => CaseEnvelope.parse({ ...envelope, ...more });
const variables = variablesOf({ $: { name: 'Ann', day: 7 } }, now, 'u-1');

async function parsed(more: object) {
  const one = withVariables(read(more), variables);
  return simpleParser(await messageOf(one, variables, fixture));
}

function problemOf(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (isProblem(error)) return `${error.problem}: ${error.message}`;
    throw error;
  }
  return 'none';
}

describe('a case definition', () => {
  const refused: readonly (readonly [string, object])[] = [
    ['no envelope', { envelopes: [] }],
    ['an unknown key', { envelopes: [envelope], hello: 1 }],
    ['a route beside mx', { route: 'a', mx: ['x.example'], envelopes: [envelope] }],
    ['a port without mx', { port: 25, envelopes: [envelope] }],
    ['a port beyond the ports', { mx: ['x.example'], port: 70_000, envelopes: [envelope] }],
    ['a header with a line end', { envelopes: [{ ...envelope, headers: { 'X-A': 'b\r\nBcc: c@d.example' } }] }],
    ['a header name with a colon', { envelopes: [{ ...envelope, headers: { 'X:A': 'b' } }] }],
    ['a content header', { envelopes: [{ ...envelope, headers: { 'Content-Type': 'text/html' } }] }],
    ['a subject with a line end', { envelopes: [{ ...envelope, subject: 'a\nb' }] }],
    ['eml beside text', { envelopes: [{ ...envelope, text: 'a', eml: 'b' }] }],
    ['text beside message', { envelopes: [{ ...envelope, text: 'a', message: 'b' }] }],
    ['a parameter with blanks', { envelopes: [{ ...envelope, params: { MAIL: ['SIZE=1 RCPT'] } }] }],
    [
      'more than 100 assertions in all (F-S9)',
      {
        envelopes: [60, 60].map((count) => ({
          ...envelope,
          assertions: { protocol: Array.from({ length: count }, () => ['RCPT', '^250']) },
        })),
      },
    ],
    [
      'long patterns in all (F-S9)',
      { envelopes: [envelope], assertions: { protocol: Array.from({ length: 11 }, () => ['RCPT', 'x'.repeat(1000)]) } },
    ],
    [
      'too many messages',
      {
        envelopes: [
          { ...envelope, repeat: 600 },
          { ...envelope, repeat: 600 },
        ],
      },
    ],
    ['an endless timeout', { timeout: 1e9, envelopes: [envelope] }],
    ['a variable with a line end', { $: { a: 'b\r\nc' }, envelopes: [envelope] }],
    ['an EHLO name with markup', { ehlo: '<script>', envelopes: [envelope] }],
  ];
  for (const [name, definition] of refused) {
    test(`with ${name} is refused`, () => {
      assert.equal(CaseDefinition.safeParse(definition).success, false);
    });
  }

  test('needs no more than an envelope', () => {
    const { timeout, envelopes } = CaseDefinition.parse({ envelopes: [envelope] });
    assert.equal(timeout, 30);
    assert.equal(envelopes[0]?.repeat, 1);
  });

  test('is wrong at the place of an address that is none', () => {
    const definition = CaseDefinition.parse({
      envelopes: [envelope, { ...envelope, rcpt: ['bob@example.net', 'x y@z'] }],
    });
    assert.match(
      problemOf(() => requestOfCase(definition, fixture)),
      /^invalid: \/envelopes\/1\/rcpt\/1: /,
    );
  });

  test('may not smuggle a command by its addresses', () => {
    for (const written of ['r@b>\r\nRCPT TO:<evil@b', 'r@b> NOTIFY=NEVER', 'a@b\0']) {
      const parsedCase = CaseDefinition.safeParse({ envelopes: [{ ...envelope, rcpt: [written] }] });
      if (parsedCase.success)
        assert.match(
          problemOf(() => requestOfCase(parsedCase.data, fixture)),
          /^invalid/,
          written,
        );
    }
  });
});

describe('variables', () => {
  test('expand to values of the case and the server', () => {
    const one = withVariables(read({ subject: '{$name} {$day} {$uid} {$yymd}', text: '{$date}' }), variables);
    assert.equal(one.subject, 'Ann 7 u-1 20261121');
    assert.equal(one.text, 'Sat, 21 Nov 2026 03:04:05 +0000');
  });

  test('are replaced once: a value is no template, and other braces stay', () => {
    const twice = variablesOf({ $: { a: '{$b}', b: 'x' } }, now);
    const one = withVariables(read({ text: '{$a} {{ 7*7 }} ${1+1} {a} $a' }), twice);
    assert.equal(one.text, '{$b} {{ 7*7 }} ${1+1} {a} $a');
  });

  test('that are not known are an error', () => {
    assert.match(
      problemOf(() => withVariables(read({ text: '{$nobody}' }), variables)),
      /no variable \{\$nobody\}/,
    );
  });

  test('cannot make a case endless', () => {
    const large = variablesOf({ $: { a: 'x'.repeat(1000) } }, now);
    const text = '{$a}'.repeat(100_000);
    assert.match(
      problemOf(() => withVariables(read({ text }), large)),
      /too large/,
    );
  });

  test('must fit their place', () => {
    const odd = variablesOf({ $: { a: 'x y' } }, now);
    assert.match(
      problemOf(() => withVariables(read({ params: { MAIL: ['SIZE={$a}'] } }), odd)),
      /^invalid: With its variables/,
    );
  });
});

describe('the message of an envelope', () => {
  test('has sender, recipients, date and id of its own unless they are given', async () => {
    const mail = await parsed({ subject: 'Grüße', text: 'a\nb' });
    assert.equal(mail.from?.text, 'ann@example.org');
    assert.deepEqual([mail.to].flat()[0]?.text, 'bob@example.net');
    assert.equal(mail.subject, 'Grüße');
    assert.equal(mail.messageId, '<u-1@mx.example.com>');
    assert.equal(mail.date?.toISOString(), now.toISOString());
    assert.equal(mail.text?.trim(), 'a\nb');
  });

  test('takes further header fields, and those instead of its own', async () => {
    const mail = await parsed({ headers: { From: 'Ann <a@b.example>', 'X-Case': '{$name}' }, text: 'x' });
    assert.equal(mail.from?.text, '"Ann" <a@b.example>');
    assert.equal(mail.headers.get('x-case'), 'Ann');
  });

  test('takes attachments as text and as base64, and reads no file for them', async () => {
    const attachments = [
      { filename: 'a.txt', contentType: 'text/plain', content: '/etc/passwd' },
      { filename: 'b.bin', content: Buffer.from([0, 1, 2]).toString('base64'), encoding: 'base64' },
    ];
    const mail = await parsed({ text: 'x', html: '<img src="file:///etc/passwd">', attachments });
    assert.deepEqual(
      mail.attachments.map(({ filename, content }) => [filename, content.toString('latin1')]),
      [
        ['a.txt', '/etc/passwd'],
        ['b.bin', '\0\x01\x02'],
      ],
    );
  });

  test('has CRLF line ends only', async () => {
    for (const more of [{ text: 'a\nb\rc' }, { eml: 'Subject: x\n\na\nb\rc' }]) {
      const message = await messageOf(read(more), variables, fixture);
      assert.doesNotMatch(message.toString('latin1').replaceAll('\r\n', ''), /[\r\n]/);
    }
  });
});

describe('files of cases', () => {
  test('are regular files below the one folder', async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'postern-cases-'));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    mkdirSync(join(folder, 'cases', 'deep'), { recursive: true });
    writeFileSync(join(folder, 'secret.eml'), 'Subject: secret\r\n\r\n');
    writeFileSync(join(folder, 'cases', 'a.eml'), 'Subject: a\r\n\r\n');
    writeFileSync(join(folder, 'cases', 'deep', 'b.eml'), 'Subject: b\r\n\r\n');
    writeFileSync(join(folder, 'cases', 'large.eml'), 'x'.repeat(2000));
    symlinkSync('../secret.eml', join(folder, 'cases', 'link.eml'));
    symlinkSync('..', join(folder, 'cases', 'up'));
    const files = new CaseFiles(join(folder, 'cases'), 1000);
    assert.equal((await files.read('a.eml')).toString(), 'Subject: a\r\n\r\n');
    assert.equal((await files.read('deep/b.eml')).toString(), 'Subject: b\r\n\r\n');
    const names = [
      '../secret.eml',
      'link.eml',
      'up/secret.eml',
      '/etc/passwd',
      '.',
      'deep',
      'none.eml',
      'a\0.eml',
      './a.eml',
      'http://x.example/a',
      '',
    ];
    for (const name of names)
      await assert.rejects(
        files.read(name),
        (error) => isProblem(error) && error.problem === 'forbidden' && !error.message.includes(folder),
        name,
      );
    await assert.rejects(files.read('large.eml'), (error) => isProblem(error) && error.problem === 'too-large');
    const none = new CaseFiles(undefined, 1000);
    await assert.rejects(none.read('a.eml'), (error) => isProblem(error) && error.problem === 'forbidden');
  });
});
