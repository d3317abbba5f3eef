import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { describe, it } from 'node:test';
import type { Spool, SpoolWriter } from '../../../../core/spool/spool.js';
import { problem } from '../../../../core/problem.js';
import { reply } from '../../../../core/smtp/protocol/replies.js';
import { nonEndings } from '../../../hostile/smuggling.js';
import type { SmtpClient } from '../../../support/smtp-client.js';
import { TestEngine } from './test-engine.js';

async function toData(client: SmtpClient, recipients: readonly string[] = ['anna@localhost']): Promise<void> {
  await client.command('MAIL FROM:<a@example.org>');
  for (const recipient of recipients) await client.command(`RCPT TO:<${recipient}>`);
  assert.equal((await client.command('DATA')).code, 354);
}

const header = 'Subject: x\r\n\r\n';

describe('DATA', () => {
  it('stores the return path, the trace and the message as it was received', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await toData(client);
    client.write('Subject: hello\r\n\r\n..dot\r\n.\r\n');
    const { raw } = await client.readReply();
    const [message] = engine.delivered;
    assert.equal(raw, `250 2.0.0 Queued as ${message?.transaction.id}\r\n`);
    assert.equal(message?.text, 'Subject: hello\r\n\r\n.dot\r\n');
    assert.match(
      message.file,
      /^Return-Path: <a@example\.org>\r\nReceived: from client\.example \(\[127\.0\.0\.1\]\)\r\n\tby mx\.test with ESMTP id [0-9a-z]{20}\r\n\tfor <anna@localhost>;\r\n\t[^\r\n]+\r\nSubject/,
    );
    assert.equal((await client.command('RCPT TO:<anna@localhost>')).code, 503);
    client.close();
  });

  it('S08 a message over the limit is read to the dot, answered 552 and not stored', async (test) => {
    const engine = await TestEngine.start(test, { settings: { limits: { messageBytes: 10_000 } } });
    const client = await engine.greeted();
    await client.command('MAIL FROM:<a@example.org> SIZE=100');
    await client.command('RCPT TO:<anna@localhost>');
    assert.match((await client.data(`${header}${'x'.repeat(70)}\r\n`.repeat(130))).raw, /^552 5\.3\.4 /);
    assert.equal((await client.command('NOOP')).code, 250);
    assert.equal(engine.delivered.length, 0);
    await engine.untilSpoolIsEmpty();
    client.close();
  });

  it('S08 a message that exceeds the limit by more than a quarter is cut', async (test) => {
    const engine = await TestEngine.start(test, { settings: { limits: { messageBytes: 10_000 } } });
    const client = await engine.greeted();
    await toData(client);
    client.write(`${header}${`${'x'.repeat(70)}\r\n`.repeat(2000)}`);
    assert.match((await client.readReply()).raw, /^552 5\.3\.4 /);
    await client.waitForEnd();
    assert.equal(engine.delivered.length, 0);
    await engine.untilSpoolIsEmpty();
    client.close();
  });

  it('a message of exactly the limit is taken', async (test) => {
    const engine = await TestEngine.start(test, { settings: { limits: { messageBytes: 1000 } } });
    const client = await engine.greeted();
    await toData(client);
    const text = `${header}${'x'.repeat(1000 - header.length - 2)}\r\n`;
    client.write(`${text}.\r\n`);
    assert.equal((await client.readReply()).code, 250);
    await toData(client);
    client.write(`${text.replace('x\r\n', 'xx\r\n')}.\r\n`);
    assert.equal((await client.readReply()).code, 552);
    client.close();
  });

  const early =
    'EHLO a.example\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<anna@localhost>\r\nDATA\r\nSubject: x\r\n\r\nMAIL FROM:<b@example.org>\r\n.\r\nQUIT\r\n';

  it('S10 message text in one packet with DATA is 554 and the end', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.connect();
    await client.readReply();
    client.write(early);
    const codes = (await client.readReplies(4)).map(({ code }) => code);
    assert.deepEqual(codes, [250, 250, 250, 554]);
    await client.waitForEnd();
    assert.equal(client.unread, '');
    assert.equal(engine.delivered.length, 0);
    client.close();
  });

  it('S10 it is taken where the configuration says so', async (test) => {
    const engine = await TestEngine.start(test, { settings: { earlyData: 'accept' } });
    const client = await engine.connect();
    await client.readReply();
    client.write(early);
    const codes = (await client.readReplies(6)).map(({ code }) => code);
    assert.deepEqual(codes, [250, 250, 250, 354, 250, 221]);
    assert.equal(engine.delivered[0]?.text, 'Subject: x\r\n\r\nMAIL FROM:<b@example.org>\r\n');
    client.close();
  });

  it('S12 long lines are stored as they are, up to 64 KB', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    for (const length of [998, 1000, 2048, 65_536]) {
      await toData(client);
      const text = `${header}${'x'.repeat(length)}\r\n`;
      client.write(`${text}.\r\n`);
      assert.equal((await client.readReply()).code, 250);
      assert.equal(engine.delivered.at(-1)?.text, text);
    }
    await toData(client);
    client.write(`${header}${'x'.repeat(66_560)}\r\n.\r\n`);
    assert.match((await client.readReply()).raw, /^554 5\.6\.0 /);
    assert.equal(engine.delivered.length, 4);
    client.close();
  });

  it('S13 bare line endings become CRLF, a NUL is refused', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await toData(client);
    client.write('Subject: x\nX: y\r\rbody\nmore\r\n.\r\n');
    assert.equal((await client.readReply()).code, 250);
    assert.equal(engine.delivered[0]?.text, 'Subject: x\r\nX: y\r\n\r\nbody\r\nmore\r\n');
    for (const text of ['Subject: a\0b\r\n\r\n', `${header}a\0b\r\n`]) {
      await toData(client);
      client.write(`${text}.\r\n`);
      assert.match((await client.readReply()).raw, /^554 5\.6\.0 /);
    }
    assert.equal(engine.delivered.length, 1);
    await engine.untilSpoolIsEmpty();
    client.close();
  });

  it('S13 bare line endings are refused where the configuration says so', async (test) => {
    const engine = await TestEngine.start(test, { settings: { lineEndings: 'reject' } });
    const client = await engine.greeted();
    for (const text of ['Subject: x\n\r\n', `${header}a\rb\r\n`]) {
      await toData(client);
      client.write(`${text}.\r\n`);
      assert.match((await client.readReply()).raw, /^554 5\.6\.0 /);
    }
    assert.equal(engine.delivered.length, 0);
    client.close();
  });

  for (const [name, ending] of Object.entries(nonEndings)) {
    it(`S14 ${name} does not end a message`, async (test) => {
      const engine = await TestEngine.start(test);
      const client = await engine.greeted();
      await toData(client);
      const smuggled = 'MAIL FROM:<evil@example.org>\r\nRCPT TO:<anna@localhost>\r\nDATA\r\nSubject: evil\r\n\r\nevil';
      client.write(`${header}first${ending}${smuggled}\r\n.\r\n`);
      const { code } = await client.readReply();
      assert.ok(code === 250 || code === 554, `got ${code}`);
      assert.equal((await client.command('NOOP')).code, 250);
      assert.equal(client.unread, '');
      assert.equal(engine.delivered.length, code === 250 ? 1 : 0);
      assert.doesNotMatch(engine.delivered[0]?.text ?? '', /(?<!\r)\n|\r(?!\n)|\0/);
      client.close();
    });
  }

  it('S14 CR CRLF.CRLF ends a message, for it holds the one ending', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await toData(client);
    client.write(`${header}first\r\r\n.\r\nNOOP\r\n`);
    assert.deepEqual(
      (await client.readReplies(2)).map(({ code }) => code),
      [250, 250],
    );
    assert.equal(engine.delivered[0]?.text, `${header}first\r\n\r\n`);
    client.close();
  });

  it('S15 a first line of two dots in a separate segment is text', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await toData(client);
    client.write('..');
    await engine.untilReceived(client);
    client.write('\r\nMAIL FROM:<evil@example.org>\r\n.\r\n');
    assert.equal((await client.readReply()).code, 250);
    assert.equal(engine.delivered[0]?.text, '.\r\nMAIL FROM:<evil@example.org>\r\n');
    client.close();
  });

  it('S16 one dot is taken from the front of a line, and none behind a bare LF', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await toData(client);
    client.write(`${header}.x\r\n..\r\n...\r\na\n..\r\n.\r\n`);
    assert.equal((await client.readReply()).code, 250);
    assert.equal(engine.delivered[0]?.text, `${header}x\r\n.\r\n..\r\na\r\n..\r\n`);
    client.close();
  });

  it('S25 a client that ends its side behind the dot gets its reply', async (test) => {
    const engine = await TestEngine.start(test, {
      deliver: () => new Promise((resolve) => setImmediate(() => resolve(undefined))),
    });
    const client = await engine.greeted();
    await toData(client);
    client.write(`${header}x\r\n.\r\n`);
    client.halfClose();
    assert.equal((await client.readReply()).code, 250);
    await client.waitForEnd();
    assert.equal(engine.delivered.length, 1);
  });

  it('S25 a client that ends its side behind QUIT gets all its replies', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    client.write('NOOP\r\nMAIL FROM:<>\r\nQUIT\r\n');
    client.halfClose();
    assert.deepEqual(
      (await client.readReplies(3)).map(({ code }) => code),
      [250, 250, 221],
    );
    await client.waitForEnd();
  });

  it('S25 a reset behind the dot leaves the message stored once', async (test) => {
    let proceed: () => void = () => undefined;
    const begun = new Promise<void>((resolve) => (proceed = resolve));
    let release: () => void = () => undefined;
    const engine = await TestEngine.start(test, {
      deliver: () => {
        proceed();
        return new Promise((resolve) => (release = () => resolve(undefined)));
      },
    });
    const client = await engine.greeted();
    await toData(client);
    client.write(`${header}x\r\n.\r\n`);
    await begun;
    client.reset();
    await engine.untilLogged('closed');
    release();
    await engine.untilLogged('accepted');
    assert.equal(engine.delivered.length, 1);
  });

  for (const [name, leave] of [
    ['a reset', (client: SmtpClient) => client.reset()],
    ['an end', (client: SmtpClient) => client.halfClose()],
  ] as const) {
    it(`S25 ${name} in the middle of DATA leaves nothing`, async (test) => {
      const engine = await TestEngine.start(test);
      const client = await engine.greeted();
      await toData(client);
      client.write(`${header}${`${'x'.repeat(998)}\r\n`.repeat(200)}`);
      await engine.untilReceived(client);
      leave(client);
      await engine.untilLogged('closed');
      assert.equal(engine.delivered.length, 0);
      await engine.untilSpoolIsEmpty();
      const next = await engine.greeted();
      assert.equal((await next.command('NOOP')).code, 250);
      next.close();
    });
  }

  it('S29 a message with more than 100 hops, or delivered to its recipient before, is a loop', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    const hops = (count: number) => 'Received: from a by b; Sat, 21 Nov 2026 00:00:00 +0000\r\n'.repeat(count);
    await toData(client);
    client.write(`${hops(100)}${header}Received: in the body\r\n.\r\n`);
    assert.equal((await client.readReply()).code, 250);
    await toData(client);
    client.write(`${hops(101)}${header}x\r\n.\r\n`);
    assert.match((await client.readReply()).raw, /^554 5\.4\.6 /);
    await toData(client);
    client.write(`delivered-to: Anna@LOCALHOST\r\n${header}x\r\n.\r\n`);
    assert.match((await client.readReply()).raw, /^554 5\.4\.6 /);
    await toData(client);
    client.write(`Delivered-To: bert@localhost\r\n${header}x\r\n.\r\n`);
    assert.equal((await client.readReply()).code, 250);
    client.close();
  });

  const headers: Readonly<Record<string, string>> = {
    '1001 fields': `${Array.from({ length: 1001 }, (_, n) => `X-${n}: y\r\n`).join('')}\r\nbody\r\n`,
    'a line without a colon': 'no colon here\r\nSubject: x\r\n\r\nbody\r\n',
    'names of prototypes': '__proto__: x\r\nconstructor: y\r\n\r\nbody\r\n',
    '8-bit': 'Subject: \u00fc\u00ff\r\n\r\nbody\r\n',
    'a field of 10,000 lines': `Subject: x\r\n${' y\r\n'.repeat(10_000)}\r\nbody\r\n`,
    nothing: '',
    'only header fields': 'Subject: x\r\nX: y\r\n',
    'only an empty line': '\r\n',
  };
  for (const [name, text] of Object.entries(headers)) {
    it(`S30 a message of ${name} is stored as it is`, async (test) => {
      const engine = await TestEngine.start(test);
      const client = await engine.greeted();
      await toData(client);
      client.write(Buffer.from(`${text}.\r\n`, 'latin1'));
      assert.equal((await client.readReply()).code, 250);
      assert.equal(engine.delivered[0]?.text, text);
      client.close();
    });
  }

  for (const [name, text] of [
    ['200,000 fields', `${'X: y\r\n'.repeat(200_000)}\r\nbody\r\n`],
    ['a field of 100,000 lines', `Subject: x\r\n${' folded again\r\n'.repeat(100_000)}\r\nbody\r\n`],
  ] as const) {
    it(`S30 ${name} are too much of a header`, async (test) => {
      const engine = await TestEngine.start(test);
      const client = await engine.greeted();
      await toData(client);
      client.write(`${text}.\r\n`);
      assert.match((await client.readReply()).raw, /^552 5\.6\.0 /);
      assert.equal((await client.command('NOOP')).code, 250);
      client.close();
    });
  }

  it('a message that is refused while it arrives is not written any further', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await toData(client);
    client.write(`${header}\0\r\n`);
    await engine.untilReceived(client);
    client.write(`${'x'.repeat(998)}\r\n`.repeat(500));
    await engine.untilReceived(client);
    assert.deepEqual(await readdir(engine.spoolFolder), []);
    client.write('.\r\n');
    assert.equal((await client.readReply()).code, 554);
    client.close();
  });
});

/** A spool that fails where it is told to. */
function failingSpool(
  where: 'create' | 'write' | 'finish',
  error: unknown,
): { readonly spool: Spool; discarded: number } {
  const state = { spool: { create: () => create() } satisfies Spool, discarded: 0 };
  const fail = (): Promise<never> => Promise.reject(error);
  const writer: SpoolWriter = {
    size: 0,
    write: () => (where === 'write' ? fail() : undefined),
    finish: fail,
    discard: () => {
      state.discarded += 1;
      return Promise.resolve();
    },
  };
  const create = (): Promise<SpoolWriter> => (where === 'create' ? fail() : Promise.resolve(writer));
  return state;
}

describe('local faults', () => {
  const noSpace = Object.assign(new Error("ENOSPC: no space left on device, write '/srv/mail/x'"), { code: 'ENOSPC' });
  const faults: readonly (readonly [string, unknown, RegExp])[] = [
    ['ENOSPC', noSpace, /^452 4\.3\.1 /],
    ['EMFILE', Object.assign(new Error("EMFILE: open '/srv/mail/x'"), { code: 'EMFILE' }), /^451 4\.3\.2 /],
    ['an unknown error', new Error('secret /srv/mail/x'), /^451 4\.3\.0 /],
    ['a problem', problem('storage-full'), /^452 4\.3\.1 /],
  ];
  for (const where of ['create', 'write', 'finish'] as const) {
    for (const [name, error, expected] of faults) {
      it(`S27 ${name} at ${where} is temporary, names no path, and the session goes on`, async (test) => {
        const failing = failingSpool(where, error);
        const engine = await TestEngine.start(test, { spool: failing.spool });
        const client = await engine.greeted();
        await client.command('MAIL FROM:<a@example.org>');
        await client.command('RCPT TO:<anna@localhost>');
        const { raw } = await client.data(`${header}x`);
        assert.match(raw, expected);
        assert.doesNotMatch(raw, /srv|ENOSPC|secret/);
        assert.equal((await client.command('NOOP')).code, 250);
        assert.equal(failing.discarded, where === 'create' ? 0 : 1);
        client.close();
      });
    }
  }

  it('S27 a hook that rejects, and a delivery that throws, are 451', async (test) => {
    const engine = await TestEngine.start(test, {
      decide: (stage) => (stage === 'mailFrom' ? Promise.reject(new Error('/srv/secret')) : undefined),
    });
    const client = await engine.greeted();
    assert.match((await client.command('MAIL FROM:<a@example.org>')).raw, /^451 4\.3\.0 (?!.*srv)/);
    client.close();
    const second = await TestEngine.start(test, { deliver: () => Promise.reject(new Error('/srv/secret')) });
    const sender = await second.greeted();
    await toData(sender);
    sender.write('.\r\n');
    assert.match((await sender.readReply()).raw, /^451 4\.3\.0 (?!.*srv)/);
    sender.close();
  });
});

describe('LMTP', () => {
  const settings = { listeners: [{ port: 0, mode: 'lmtp' as const }], limits: { messageBytes: 1000 } };

  it('S28 answers for each recipient in order, duplicates included', async (test) => {
    const engine = await TestEngine.start(test, {
      settings,
      deliver: ({ recipients }) =>
        Promise.resolve({
          summary: reply(250, '2.0.0', 'ok'),
          replies: recipients.map((_, n) => (n === 1 ? reply(452, '4.2.2', 'full') : reply(250, '2.1.5', `r${n}`))),
          recipients,
        }),
    });
    const client = await engine.greeted(0, 'LHLO client.example');
    const recipients = ['a@localhost', 'b@localhost', 'a@localhost', 'unknown@localhost'];
    await toData(client, recipients);
    client.write(`${header}x\r\n.\r\n`);
    const replies = (await client.readReplies(3)).map(({ raw }) => raw.trim());
    assert.deepEqual(replies, ['250 2.1.5 r0', '452 4.2.2 full', '250 2.1.5 r2']);
    assert.equal((await client.command('NOOP')).code, 250);
    client.close();
  });

  it('S05 S28 the replies to a message are all sent before the error limit ends the session', async (test) => {
    const engine = await TestEngine.start(test, {
      settings: { ...settings, limits: { ...settings.limits, errors: 1 } },
      deliver: ({ recipients }) =>
        Promise.resolve({
          summary: reply(250, '2.0.0', 'ok'),
          replies: recipients.map((_, n) => (n === 1 ? reply(452, '4.2.2', 'full') : reply(250, '2.1.5', `r${n}`))),
          recipients,
        }),
    });
    const client = await engine.greeted(0, 'LHLO client.example');
    assert.equal((await client.command('ODD')).code, 500);
    await toData(client, ['a@localhost', 'b@localhost']);
    client.write(`${header}x\r\n.\r\n`);
    assert.deepEqual(
      (await client.readReplies(3)).map(({ code }) => code),
      [250, 452, 421],
    );
    await client.waitForEnd();
  });

  it('S28 without a valid recipient DATA is 503, and EHLO is unknown', async (test) => {
    const engine = await TestEngine.start(test, { settings });
    const client = await engine.connect();
    assert.match((await client.readReply()).raw, /^220 mx\.test LMTP /);
    assert.equal((await client.command('EHLO client.example')).code, 500);
    assert.equal((await client.command('HELO client.example')).code, 500);
    await client.command('LHLO client.example');
    await client.command('MAIL FROM:<>');
    await client.command('RCPT TO:<unknown@localhost>');
    assert.match((await client.command('DATA')).raw, /^503 5\.5\.1 /);
    client.close();
  });

  it('S28 an oversized message is refused for each recipient, and none of it is read as commands', async (test) => {
    const engine = await TestEngine.start(test, { settings });
    const client = await engine.greeted(0, 'LHLO client.example');
    await toData(client, ['a@localhost', 'a@localhost', 'b@localhost']);
    client.write(`${header}${'x'.repeat(1000)}\r\nMAIL FROM:<evil@example.org>\r\n.\r\nNOOP\r\n`);
    const codes = (await client.readReplies(4)).map(({ code }) => code);
    assert.deepEqual(codes, [552, 552, 552, 250]);
    client.close();
  });

  it('a delivery that answers for too few recipients is a fault for all', async (test) => {
    const engine = await TestEngine.start(test, {
      settings,
      deliver: ({ recipients }) =>
        Promise.resolve({ summary: reply(250, '2.0.0', 'ok'), replies: [reply(250, '2.0.0', 'ok')], recipients }),
    });
    const client = await engine.greeted(0, 'LHLO client.example');
    await toData(client, ['a@localhost', 'b@localhost']);
    client.write(`${header}x\r\n.\r\n`);
    assert.deepEqual(
      (await client.readReplies(2)).map(({ code }) => code),
      [451, 451],
    );
    client.close();
  });
});
