import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { simpleParser } from 'mailparser';
import { openSpool } from '../../../../core/spool/file-spool.js';
import type { Spool } from '../../../../core/spool/spool.js';
import type { Ending } from '../../../support/ending.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { rememberingLog } from '../../spool/remembering-log.js';
import { TestEngine } from './test-engine.js';

const signIn = `AUTH PLAIN ${Buffer.from('\0anna\0secret').toString('base64')}`;
const long = 'word '.repeat(2000).trim();
const message = `Subject: ${'s '.repeat(600).trim()}\r\nContent-Type: text/html\r\n\r\n<p>${long}</p>\r\nshort`;
const longest = (text: string): number => Math.max(...text.split('\r\n').map(({ length }) => length));

async function sent(
  test: Ending,
  text: string,
  longLines?: 'encode' | 'refuse' | 'pass',
  mode?: 'mx' | 'lmtp',
  spool?: Spool,
) {
  const submission = { mode: 'submission', port: 0, allowPlaintextAuth: true } as const;
  const listeners = [mode === undefined ? submission : ({ mode, port: 0 } as const)];
  const engine = await TestEngine.start(test, {
    settings: { listeners, ...(longLines && { longLines }) },
    ...(spool && { spool }),
  });
  const client = await engine.greeted(0, mode === 'lmtp' ? 'LHLO client.example' : undefined);
  if (mode === undefined) await client.command(signIn);
  await client.command('MAIL FROM:<anna@localhost>');
  await client.command('RCPT TO:<ben@localhost>');
  const reply = await client.data(text);
  client.close();
  await engine.untilSpoolIsEmpty();
  return { reply: reply.raw, delivered: engine.delivered[0] };
}

describe('lines over 998 octets in mail of users', () => {
  it('F-I9 are encoded, and the message reads the same', async (test) => {
    const { reply, delivered } = await sent(test, message);
    assert.match(reply, /^250 /);
    assert.ok(longest(delivered?.file ?? '') <= 998);
    assert.match(delivered?.file ?? '', /^Return-Path: <anna@localhost>\r\nReceived: /);
    const [before, after] = [await simpleParser(`${message}\r\n`), await simpleParser(delivered?.text ?? '')];
    assert.deepEqual([after.subject, after.html], [before.subject, before.html]);
  });

  it('F-I9 are encoded in a message that is too large for the memory', async (test) => {
    const { reply, delivered } = await sent(test, `Subject: s\r\n\r\n${`${long}\r\n`.repeat(100)}end`);
    assert.match(reply, /^250 /);
    assert.ok(longest(delivered?.text ?? '') <= 998);
    assert.equal(delivered?.text.replaceAll('=\r\n', '').split(long).length, 101);
  });

  it('F-I9 are encoded when no other file may be opened in the spool', async (test) => {
    const folder = join(await temporaryFolder(test), 'spool');
    const bounds = { openWhileReceiving: 1, memoryBytes: 1024, reserveBytes: 0 };
    const spool = await openSpool(folder, { ...rememberingLog(), ...bounds });
    const { reply, delivered } = await sent(test, message, 'encode', undefined, spool);
    assert.match(reply, /^250 /);
    assert.ok(longest(delivered?.text ?? '') <= 998);
    assert.equal(spool.figures()['receiving'], 0);
  });

  it('F-I9 are refused where they cannot be encoded, and the message is left nowhere', async (test) => {
    const { reply, delivered } = await sent(test, `X-Token: ${'x'.repeat(1000)}\r\n\r\ntext`);
    assert.match(reply, /^554 5\.6\.0 The message has a line over 998 octets, which cannot be encoded: its header has/);
    assert.equal(delivered, undefined);
  });

  it('are refused, or passed on as they are, where the option says so', async (test) => {
    assert.match((await sent(test, message, 'refuse')).reply, /^554 5\.6\.0 The message has a line that is too long/);
    assert.match((await sent(test, 'Subject: s\r\n\r\ntext', 'refuse')).reply, /^250 /);
    assert.equal((await sent(test, message, 'pass')).delivered?.text, `${message}\r\n`);
  });

  for (const mode of ['mx', 'lmtp'] as const) {
    it(`stay as they are in mail of other servers: ${mode}`, async (test) => {
      assert.equal((await sent(test, message, 'refuse', mode)).delivered?.text, `${message}\r\n`);
    });
  }
});
