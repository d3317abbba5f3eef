import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { problem } from '../../../../core/problem.js';
import { reply } from '../../../../core/smtp/protocol/replies.js';
import type { Spool, SpoolWriter } from '../../../../core/spool/spool.js';
import { cut, cuts } from '../../../fuzz/wire-text.js';
import { nonEndings, smuggledTo } from '../../../hostile/smuggling.js';
import type { SmtpClient } from '../../../support/smtp-client.js';
import { until } from '../../../support/until.js';
import { TestClock, TestEngine } from './test-engine.js';

const header = 'Subject: x\r\n\r\n';
const smuggled = smuggledTo('anna@localhost');

/** BDAT with its octets, given as latin1. */
const chunk = (text: string, last: '' | ' LAST' = ''): string => `BDAT ${text.length}${last}\r\n${text}`;

async function toText(client: SmtpClient, recipients: readonly string[] = ['anna@localhost']): Promise<void> {
  const envelope = ['MAIL FROM:<a@example.org>', ...recipients.map((recipient) => `RCPT TO:<${recipient}>`)];
  await client.pipeline(envelope);
}

function write(client: SmtpClient, text: string): void {
  client.write(Buffer.from(text, 'latin1'));
}

async function codes(client: SmtpClient, count: number): Promise<readonly number[]> {
  return (await client.readReplies(count)).map(({ code }) => code);
}

/** Nothing that the client sent is left to be answered. */
async function assertInStep(client: SmtpClient): Promise<void> {
  assert.equal((await client.command('VRFY x')).code, 252);
  assert.equal(client.unread, '');
}

describe('BDAT', () => {
  it('is offered by every kind of listener', async (test) => {
    const listeners = (['mx', 'submission', 'lmtp'] as const).map((mode) => ({ port: 0, mode }));
    const engine = await TestEngine.start(test, { settings: { listeners } });
    for (const [index, hello] of ['EHLO a.example', 'EHLO a.example', 'LHLO a.example'].entries()) {
      const client = await engine.connect(index);
      await client.readReply();
      assert.ok((await client.command(hello)).lines.includes('CHUNKING'));
      client.close();
    }
  });

  it('takes a message in one chunk, with its trace', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await toText(client);
    write(client, chunk('Subject: hello\r\n\r\n.dot\r\n', ' LAST'));
    const { raw } = await client.readReply();
    const [message] = engine.delivered;
    assert.equal(raw, `250 2.0.0 Queued as ${message?.transaction.id}\r\n`);
    assert.equal(message?.text, 'Subject: hello\r\n\r\n.dot\r\n');
    assert.match(
      message.file,
      /^Return-Path: <a@example\.org>\r\nReceived: from client\.example .*\r\n\tby mx\.test with ESMTP id/,
    );
    assert.equal((await client.command('RCPT TO:<anna@localhost>')).code, 503);
    client.close();
  });

  it('takes a message in many chunks, the last of them empty', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await toText(client);
    for (const part of ['Subject: he', 'llo\r', '\n\r\nbody', '', '.\r\n']) {
      write(client, chunk(part));
      assert.equal((await client.readReply()).raw, '250 2.0.0 OK\r\n');
      assert.equal(engine.delivered.length, 0);
    }
    write(client, 'bdat 0  last\r\n');
    assert.equal((await client.readReply()).code, 250);
    assert.equal(engine.delivered[0]?.text, 'Subject: hello\r\n\r\nbody.\r\n');
    client.close();
  });

  it('answers chunks, commands and messages that are pipelined, in order', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    const envelope = 'MAIL FROM:<a@example.org>\r\nRCPT TO:<anna@localhost>\r\n';
    const message = `${envelope}${chunk(header)}NOOP\r\n${chunk(`${smuggled}\r\n`, ' LAST')}`;
    write(client, `${message}${message}QUIT\r\n`);
    assert.deepEqual(await codes(client, 11), [...Array<number>(10).fill(250), 221]);
    await client.waitForEnd();
    assert.deepEqual(
      engine.delivered.map(({ text }) => text),
      Array(2).fill(`${header}${smuggled}\r\n`),
    );
  });

  it('is the same wherever TCP cuts it', async (test) => {
    const engine = await TestEngine.start(test);
    const session =
      'EHLO a.example\r\nMAIL FROM:<>\r\nRCPT TO:<anna@localhost>\r\nBDAT 7\r\nA: b\r\n\rBDAT 6 LAST\r\n\n.\r\nx\nRSET\r\n';
    for (let place = 0; place <= session.length; place += 1) {
      const client = await engine.connect();
      await client.readReply();
      write(client, session.slice(0, place));
      await new Promise((resolve) => setImmediate(resolve));
      write(client, session.slice(place));
      assert.deepEqual(await codes(client, 6), Array(6).fill(250));
      assert.equal(engine.delivered.at(-1)?.text, 'A: b\r\n\r\n.\r\nx\r\n');
      client.close();
    }
    assert.equal(engine.delivered.length, session.length + 1);
  });

  it('stores what DATA stores of the same message, however it is cut', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    const pieces = ['a', 'bc', '.', '..', '\r\n', '\r\n', '\r\n.', '\r', '\n', '\r\r\n', '\n.', '\r.', ' ', '\xff'];
    const text = fc
      .array(fc.constantFrom(...pieces, ...Object.values(nonEndings).filter((ending) => !ending.includes('\0'))), {
        maxLength: 24,
      })
      .map((parts) => `${parts.join('')}\r\n`);
    await fc.assert(
      fc.asyncProperty(text, cuts, cuts, async (message, chunks, segments) => {
        await toText(client);
        assert.equal((await client.command('DATA')).code, 354);
        write(client, `${message.replaceAll(/(^|\r\n)\./g, '$1..')}.\r\n`);
        assert.equal((await client.readReply()).code, 250);
        await toText(client);
        const parts = cut(message, chunks);
        const wire = parts.map((part, index) => chunk(part, index === parts.length - 1 ? ' LAST' : '')).join('');
        for (const segment of cut(wire, segments)) {
          write(client, segment);
          await new Promise((resolve) => setImmediate(resolve));
        }
        assert.deepEqual(await codes(client, parts.length), Array(parts.length).fill(250));
        const [byData, byChunks] = engine.delivered.slice(-2);
        assert.equal(byChunks?.text, byData?.text);
      }),
      { numRuns: 150 },
    );
    client.close();
  });

  it('completes the last line', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    for (const [sent, stored] of [
      [`${header}text`, `${header}text\r\n`],
      [`${header}text\r`, `${header}text\r\n`],
      [`${header}text\n`, `${header}text\r\n`],
      [`${header}text\n\n.\n`, `${header}text\r\n\r\n.\r\n`],
      [`${header}.`, `${header}.\r\n`],
      [header, header],
      ['', ''],
    ] as const) {
      await toText(client);
      write(client, chunk(sent, ' LAST'));
      assert.equal((await client.readReply()).code, 250);
      assert.equal(engine.delivered.at(-1)?.text, stored);
    }
    client.close();
  });

  it('has the rules of DATA for line ends, NUL, long lines and headers', async (test) => {
    const engine = await TestEngine.start(test, { settings: { lineEndings: 'reject' } });
    const client = await engine.greeted();
    for (const [text, expected] of [
      [`${header}a\rb\r\n`, /^554 5\.6\.0 /],
      [`${header}a\nb\r\n`, /^554 5\.6\.0 /],
      [`${header}a\r`, /^554 5\.6\.0 /],
      [`${header}a\0b\r\n`, /^554 5\.6\.0 /],
      [`${header}${'x'.repeat(70_000)}\r\n`, /^554 5\.6\.0 /],
      [`Delivered-To: anna@localhost\r\n${header}`, /^554 5\.4\.6 /],
      ['X: y\r\n'.repeat(5001), /^552 5\.6\.0 /],
    ] as const) {
      await toText(client);
      write(client, chunk(text, ' LAST'));
      assert.match((await client.readReply()).raw, expected);
    }
    assert.equal(engine.delivered.length, 0);
    await engine.untilSpoolIsEmpty();
    await assertInStep(client);
    client.close();
  });

  it('a client that ends its side behind the last chunk gets its reply', async (test) => {
    const engine = await TestEngine.start(test, {
      deliver: () => new Promise((resolve) => setImmediate(() => resolve(undefined))),
    });
    const client = await engine.greeted();
    await toText(client);
    write(client, chunk(header, ' LAST'));
    client.halfClose();
    assert.equal((await client.readReply()).code, 250);
    await client.waitForEnd();
    assert.equal(engine.delivered.length, 1);
  });

  it('does not offer BINARYMIME, and refuses it', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    assert.ok(!(await client.command('EHLO a.example')).lines.includes('BINARYMIME'));
    assert.match((await client.command('MAIL FROM:<> BODY=BINARYMIME')).raw, /^501 5\.5\.4 /);
    client.close();
  });
});

describe('octets of a chunk are never read as commands', () => {
  const octets = `${smuggled}\r\n.\r\nQUIT\r\n`;

  it('before MAIL, without a recipient, and after the last chunk', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    write(client, `${chunk(octets, ' LAST')}${chunk(octets)}`);
    assert.deepEqual(await codes(client, 2), [503, 503]);
    write(client, `MAIL FROM:<>\r\nRCPT TO:<unknown@localhost>\r\n${chunk(octets, ' LAST')}`);
    assert.deepEqual(await codes(client, 3), [250, 550, 503]);
    write(client, `RCPT TO:<anna@localhost>\r\n${chunk(header, ' LAST')}${chunk(octets, ' LAST')}`);
    assert.deepEqual(await codes(client, 3), [250, 250, 503]);
    await assertInStep(client);
    assert.equal(engine.delivered.length, 1);
    client.close();
  });

  it('in a chunk that is refused, and in those that are pipelined behind it', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await toText(client);
    write(client, `${chunk(`${header}\0`)}${chunk(octets)}${chunk(octets, ' LAST')}${chunk(octets)}`);
    assert.deepEqual(await codes(client, 4), [554, 554, 554, 503]);
    await assertInStep(client);
    assert.equal(engine.delivered.length, 0);
    assert.equal(engine.logged('rejected').length, 1);
    await toText(client);
    write(client, chunk(header, ' LAST'));
    assert.equal((await client.readReply()).code, 250);
    client.close();
  });

  it('in a chunk behind a refused one, after RSET', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await toText(client);
    write(client, `${chunk('\0')}RSET\r\n${chunk(octets, ' LAST')}`);
    assert.deepEqual(await codes(client, 3), [554, 250, 503]);
    await assertInStep(client);
    assert.equal(await engine.count('smtp_messages_total'), 1);
    client.close();
  });

  const malformed: readonly (readonly [line: string, code: number])[] = [
    ['BDAT', 501],
    ['BDAT LAST', 501],
    ['BDAT x', 501],
    ['BDAT -1', 501],
    ['BDAT +60', 501],
    ['BDAT 60.0', 501],
    ['BDAT 6e1', 501],
    ['BDAT 0x3c', 501],
    ['BDAT 60 FIRST', 501],
    ['BDAT 60 LAST LAST', 501],
    ['BDAT 60LAST', 501],
    ['BDAT 60\tLAST', 501],
    ['BDAT\t60', 501],
    ['  bdat 60', 501],
    ['BDAT 60 \xff', 501],
    ['BDAT \xef\xbc\x96', 501],
    [`BDAT ${'9'.repeat(21)}`, 501],
    [`BDAT ${' '.repeat(5000)}60`, 500],
    ['BDAT 60 LAST\n', 500],
    [`BDAT ${'9'.repeat(20)}`, 503],
  ];
  for (const isOpen of [false, true]) {
    it(`behind a malformed BDAT, which ends the session, ${isOpen ? 'in' : 'without'} a transaction`, async (test) => {
      const engine = await TestEngine.start(test);
      for (const [line, code] of malformed) {
        const client = await engine.greeted();
        if (isOpen) await toText(client);
        write(client, `${line}${line.endsWith('\n') ? '' : '\r\n'}${octets}`);
        assert.equal(
          (await client.readReply()).code,
          isOpen && code === 503 ? 552 : code,
          JSON.stringify(line.slice(0, 40)),
        );
        await client.waitForEnd();
        assert.equal(client.unread, '');
        client.close();
      }
      assert.equal(engine.delivered.length, 0);
    });
  }

  it('behind STARTTLS in the clear', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port: 0, tls: 'starttls' }] } });
    const client = await engine.greeted();
    write(client, `STARTTLS\r\n${chunk(octets, ' LAST')}`);
    assert.equal((await client.readReply()).code, 220);
    await client.startTls();
    await assertInStep(client);
    assert.equal((await client.command('BDAT 0 LAST')).code, 503);
    client.close();
  });
});

describe('the order of commands around chunks', () => {
  it('neither MAIL, RCPT, DATA nor STARTTLS follows a chunk, and the message is still taken', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port: 0, tls: 'starttls' }] } });
    const client = await engine.greeted();
    await toText(client);
    write(client, chunk(header));
    assert.equal((await client.readReply()).code, 250);
    for (const line of ['MAIL FROM:<>', 'RCPT TO:<bert@localhost>', 'DATA', 'STARTTLS', 'AUTH PLAIN']) {
      assert.match((await client.command(line)).raw, /^50[23] 5\.5\.1 /, line);
    }
    write(client, chunk('x\r\n', ' LAST'));
    assert.equal((await client.readReply()).code, 250);
    assert.equal(engine.delivered[0]?.text, `${header}x\r\n`);
    assert.deepEqual(engine.delivered[0].recipients, ['anna@localhost']);
    client.close();
  });

  for (const command of ['RSET', 'EHLO b.example', 'HELO b.example']) {
    it(`${command} between chunks drops the message`, async (test) => {
      const engine = await TestEngine.start(test);
      const client = await engine.greeted();
      await toText(client);
      write(client, `${chunk(`${header}${'x'.repeat(998)}\r\n`.repeat(400))}${command}\r\nBDAT 0 LAST\r\n`);
      assert.deepEqual(await codes(client, 3), [250, 250, 503]);
      await engine.untilSpoolIsEmpty();
      await toText(client);
      write(client, chunk('Subject: second\r\n', ' LAST'));
      assert.equal((await client.readReply()).code, 250);
      assert.deepEqual(
        engine.delivered.map(({ text }) => text),
        ['Subject: second\r\n'],
      );
      client.close();
    });
  }

  for (const [name, leave] of [
    ['QUIT', (client: SmtpClient) => write(client, 'QUIT\r\n')],
    ['a reset', (client: SmtpClient) => client.reset()],
    ['an end', (client: SmtpClient) => client.halfClose()],
  ] as const) {
    for (const part of ['in the middle of a chunk', 'between chunks']) {
      if (name === 'QUIT' && part !== 'between chunks') continue;
      it(`${name} ${part} leaves nothing`, async (test) => {
        const engine = await TestEngine.start(test);
        const client = await engine.greeted();
        await toText(client);
        const text = `${header}${`${'x'.repeat(998)}\r\n`.repeat(400)}`;
        write(client, part === 'between chunks' ? chunk(text) : `BDAT ${text.length + 1}\r\n${text}`);
        await engine.untilReceived(client);
        leave(client);
        await engine.untilLogged('closed');
        assert.equal(engine.delivered.length, 0);
        await engine.untilSpoolIsEmpty();
        client.close();
      });
    }
  }
});

describe('the size of chunks', () => {
  const settings = { limits: { messageBytes: 10_000 } };

  it('a message of exactly the limit is taken, one octet more is 552 when all is read', async (test) => {
    const engine = await TestEngine.start(test, { settings });
    const client = await engine.greeted();
    const line = `${'x'.repeat(98)}\r\n`;
    await toText(client);
    write(client, `${chunk(line.repeat(50))}${chunk(line.repeat(50), ' LAST')}`);
    assert.deepEqual(await codes(client, 2), [250, 250]);
    await toText(client);
    write(client, `${chunk(line.repeat(50))}${chunk(`x${line.repeat(50)}`)}${chunk(line, ' LAST')}`);
    const replies = await client.readReplies(3);
    assert.deepEqual(
      replies.map(({ code, status }) => `${code} ${status}`),
      ['250 2.0.0', '552 5.3.4', '552 5.3.4'],
    );
    await assertInStep(client);
    assert.equal(engine.delivered.length, 1);
    await engine.untilSpoolIsEmpty();
    client.close();
  });

  it('chunks that exceed it by more than a quarter in all are refused before they are read, and the session ends', async (test) => {
    const engine = await TestEngine.start(test, { settings });
    for (const before of ['', chunk('x'.repeat(9000))]) {
      const client = await engine.greeted();
      await toText(client);
      write(client, `${before}BDAT ${12_506 - (before === '' ? 0 : 9000)}\r\n`);
      if (before !== '') assert.equal((await client.readReply()).code, 250);
      assert.match((await client.readReply()).raw, /^552 5\.3\.4 /);
      await client.waitForEnd();
      client.close();
    }
    await engine.untilSpoolIsEmpty();
  });

  it('a chunk without a message is not read for ever', async (test) => {
    const engine = await TestEngine.start(test, { settings });
    const client = await engine.greeted();
    write(client, `${chunk('x'.repeat(12_505))}BDAT 12506\r\n`);
    assert.deepEqual(await codes(client, 2), [503, 503]);
    await client.waitForEnd();
    client.close();
  });

  it('errors are counted, and the session ends', async (test) => {
    const engine = await TestEngine.start(test, { settings: { limits: { errors: 3 } } });
    const client = await engine.greeted();
    write(client, chunk('NOOP\r\n').repeat(10));
    assert.deepEqual(await codes(client, 4), [503, 503, 503, 421]);
    await client.waitForEnd();
    client.close();
  });

  it('no more is read while the disk is behind', async (test) => {
    const writer: SpoolWriter = {
      size: 0,
      write: () => new Promise<never>(() => undefined),
      finish: () => Promise.reject(new Error('not reached')),
      discard: () => Promise.resolve(),
    };
    const engine = await TestEngine.start(test, { spool: { create: () => writer } });
    const client = await engine.greeted();
    await toText(client);
    const octets = 32 * 1024 * 1024;
    write(client, `BDAT ${octets}\r\n${'x'.repeat(octets)}`);
    const received = await until('a server that stops reading', engine.steadyCount('smtp_received_bytes_total'));
    assert.ok(received < 1024 * 1024, `${received} bytes were read`);
    client.close();
  });
});

describe('chunks that come slowly', () => {
  it('a message slower than 500 bytes a second is cut after a minute, within a chunk and between chunks', async (test) => {
    for (const isBetween of [false, true]) {
      const clock = new TestClock();
      const engine = await TestEngine.start(test, { clock });
      const client = await engine.greeted();
      await toText(client);
      write(client, chunk(header));
      assert.equal((await client.readReply()).code, 250);
      if (!isBetween) write(client, `BDAT 1000\r\n${header}`);
      await engine.untilReceived(client);
      clock.advance(59);
      await engine.untilSwept();
      assert.equal(client.unread, '');
      clock.advance(2);
      assert.match((await client.readReply()).raw, /^421 4\.4\.2 /);
      await client.waitForEnd();
      await engine.untilSpoolIsEmpty();
      client.close();
    }
  });

  it('a chunk without a message has the time of a command', async (test) => {
    const clock = new TestClock();
    const engine = await TestEngine.start(test, { clock });
    const client = await engine.greeted();
    for (let n = 0; n < 6; n += 1) {
      write(client, n === 0 ? 'BDAT 1000\r\n' : 'x');
      await engine.untilReceived(client);
      clock.advance(n < 5 ? 50 : 51);
    }
    assert.match((await client.readReply()).raw, /^421 4\.4\.2 /);
    await client.waitForEnd();
    client.close();
  });
});

describe('chunks and local faults', () => {
  for (const where of ['create', 'write', 'finish'] as const) {
    it(`S27 a full disk at ${where} is temporary, and the session goes on`, async (test) => {
      const fail = (): Promise<never> => Promise.reject(problem('storage-full'));
      let discarded = 0;
      const writer: SpoolWriter = {
        size: 0,
        write: () => (where === 'write' ? fail() : undefined),
        finish: fail,
        discard: () => {
          discarded += 1;
          return Promise.resolve();
        },
      };
      const spool: Spool = { create: () => (where === 'create' ? fail() : writer) };
      const engine = await TestEngine.start(test, { spool });
      const client = await engine.greeted();
      await toText(client);
      write(client, `${chunk(`${header}${smuggled}\r\n`)}${chunk('x\r\n')}${chunk('x\r\n', ' LAST')}`);
      const first = where === 'finish' ? 250 : 452;
      assert.deepEqual(await codes(client, 3), [first, first, 452]);
      await assertInStep(client);
      assert.equal(discarded, where === 'create' ? 0 : 1);
      client.close();
    });
  }
});

describe('BDAT over LMTP', () => {
  const settings = { listeners: [{ port: 0, mode: 'lmtp' as const }], limits: { messageBytes: 1000 } };
  const recipients = ['a@localhost', 'b@localhost', 'a@localhost'];

  it('S28 the last chunk has a reply for each recipient, every other has one', async (test) => {
    const engine = await TestEngine.start(test, {
      settings,
      deliver: (transaction) =>
        Promise.resolve({
          summary: reply(250, '2.0.0', 'ok'),
          replies: transaction.recipients.map((_, n) =>
            n === 1 ? reply(452, '4.2.2', 'full') : reply(250, '2.1.5', `r${n}`),
          ),
          recipients: transaction.recipients,
        }),
    });
    const client = await engine.greeted(0, 'LHLO client.example');
    await toText(client, recipients);
    write(client, `${chunk(header)}${chunk('x\r\n', ' LAST')}`);
    assert.deepEqual(
      (await client.readReplies(4)).map(({ raw }) => raw.trim()),
      ['250 2.0.0 OK', '250 2.1.5 r0', '452 4.2.2 full', '250 2.1.5 r2'],
    );
    await assertInStep(client);
    client.close();
  });

  it('S28 so has one that is refused, unless there is no recipient', async (test) => {
    const engine = await TestEngine.start(test, { settings });
    const client = await engine.greeted(0, 'LHLO client.example');
    await toText(client, recipients);
    const large = `${header}${'x'.repeat(990)}\r\n`;
    write(client, `${chunk(large)}${chunk('MAIL FROM:<evil@example.org>\r\n', ' LAST')}`);
    assert.deepEqual(await codes(client, 4), [552, 552, 552, 552]);
    write(client, `MAIL FROM:<>\r\nRCPT TO:<unknown@localhost>\r\n${chunk(header, ' LAST')}`);
    assert.deepEqual(await codes(client, 3), [250, 550, 503]);
    await assertInStep(client);
    client.close();
  });
});
