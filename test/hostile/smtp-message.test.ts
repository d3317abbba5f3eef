import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { HeldLoop, longestHoldMs } from '../fuzz/held-loop.js';
import { suiteEnding } from '../support/ending.js';
import { behindTrace, listMessages, rawMessage } from '../support/mailbox-reader.js';
import { hugeHeaders, mimeBombs, oddHeaders } from './mime-bombs.js';
import { nonEndings, smuggledTo } from './smuggling.js';
import { header, SmtpFixture } from './smtp-fixture.js';

const suite = suiteEnding();

const smuggled = smuggledTo('postmaster@localhost');

for (const durability of ['file', 'log']) {
  test(`S36 a message in chunks is stored octet for octet, by a ${durability}`, async (t) => {
    const fixture = await SmtpFixture.start(t, {}, { durability });
    const texts = [`${header}.\r\n..\r\n\xff\r\n`, `${header}${`${'.'.repeat(70)}\r\n`.repeat(10_000)}`];
    for (const listener of ['mx', 'lmtp'] as const) {
      for (const text of texts) {
        const before = new Set(await fixture.stored());
        const client = await fixture.greeted(listener);
        await client.pipeline(['MAIL FROM:<a@sender.example>', 'RCPT TO:<postmaster@localhost>']);
        const [half, third] = [text.length / 2, text.length / 3].map(Math.floor);
        const parts = [text.slice(0, third), text.slice(third, half), text.slice(half), ''];
        const wire = parts.map((part, index) => `BDAT ${part.length}${index < 3 ? '' : ' LAST'}\r\n${part}`);
        client.write(Buffer.from(wire.join(''), 'latin1'));
        assert.deepEqual(
          (await client.readReplies(4)).map(({ code }) => code),
          [250, 250, 250, 250],
        );
        client.close();
        const [added, ...more] = (await fixture.stored()).filter((file) => !before.has(file));
        assert.deepEqual(more, []);
        assert.ok(added !== undefined && behindTrace(Buffer.from(added, 'latin1')).toString('latin1') === text);
      }
    }
  });
}

describe('hostile messages against the whole server', () => {
  let fixture: SmtpFixture;
  before(async () => {
    fixture = await SmtpFixture.start(suite);
    // Templates are made at their first use; that is no work for what comes in.
    await exchange(`${header}.\r\n`);
    await everyView();
  });

  /** Whatever the task is, the server goes on with others meanwhile. */
  async function watched<T>(task: () => Promise<T>): Promise<T> {
    const loop = new HeldLoop(() => 0);
    const done = await task();
    const { ms } = loop.stop();
    assert.ok(ms <= longestHoldMs, `the event loop was held for ${Math.round(ms)} ms`);
    return done;
  }

  /** Sends the wire text; returns code and status of the answer and what has been stored by it, without the trace header. */
  async function exchange(wire: string): Promise<{ readonly said: string; readonly added: readonly string[] }> {
    const before = new Set(await fixture.stored());
    const client = await fixture.atData();
    const { code, status, raw } = await watched(() => fixture.send(client, wire));
    assert.doesNotMatch(raw, /\/tmp|data\/|Error/);
    assert.equal((await client.command('NOOP')).code, 250, 'the session goes on, and nothing is left in it');
    assert.equal(client.unread, '');
    client.close();
    const added = (await fixture.stored()).filter((file) => !before.has(file));
    return {
      said: `${code} ${status}`,
      added: added.map((file) => behindTrace(Buffer.from(file, 'latin1')).toString('latin1')),
    };
  }

  for (const length of [998, 1000, 2048, 65_000]) {
    test(`S12 a line of ${length} characters is stored as it is`, async () => {
      const text = `${header}${'x'.repeat(length)}\r\n`;
      assert.deepEqual(await exchange(`${text}.\r\n`), { said: '250 2.0.0', added: [text] });
    });
  }

  test('S12 a line over 64 KB is 554, and nothing is stored', async () => {
    assert.deepEqual(await exchange(`${header}${'x'.repeat(70_000)}\r\n.\r\n`), { said: '554 5.6.0', added: [] });
  });

  test('S13 bare CR and LF become CRLF in header and body', async () => {
    const { said, added } = await exchange('Subject: bare\nX-A: b\rX-C: d\r\n\r\none\ntwo\rthree\r\n.\r\n');
    assert.equal(said, '250 2.0.0');
    assert.deepEqual(added, ['Subject: bare\r\nX-A: b\r\nX-C: d\r\n\r\none\r\ntwo\r\nthree\r\n']);
  });

  for (const [place, text] of [
    ['header', 'Subject: a\0b\r\n\r\n'],
    ['body', `${header}a\0b\r\n`],
  ] as const) {
    test(`S13 a NUL in the ${place} is 554, and nothing is stored`, async () => {
      assert.deepEqual(await exchange(`${text}.\r\n`), { said: '554 5.6.0', added: [] });
    });
  }

  for (const [name, ending] of Object.entries(nonEndings)) {
    test(`S14 ${name} does not end a message and smuggles no second one in`, async () => {
      const { said, added } = await exchange(`${header}first${ending}${smuggled}\r\n.\r\n`);
      assert.equal(said, /\0/.test(ending) ? '554 5.6.0' : '250 2.0.0');
      assert.equal(added.length, said === '250 2.0.0' ? 1 : 0);
      assert.doesNotMatch(added.join(''), /(?<!\r)\n|\r(?!\n)|\0/);
    });
  }

  test('S14 CR CRLF.CRLF ends the message, for it holds the one ending', async () => {
    assert.deepEqual(await exchange(`${header}first\r\r\n.\r\n`), {
      said: '250 2.0.0',
      added: [`${header}first\r\n\r\n`],
    });
  });

  test('S15 a first line of two dots in a separate segment is text', async () => {
    const client = await fixture.atData();
    client.write('..');
    await new Promise((resolve) => setImmediate(resolve));
    const before = new Set(await fixture.stored());
    assert.equal((await fixture.send(client, `\r\n${smuggled}\r\n.\r\n`)).code, 250);
    const added = (await fixture.stored()).filter((file) => !before.has(file));
    assert.equal(added.length, 1);
    assert.ok(added[0]?.endsWith(`\n.\r\n${smuggled}\r\n`));
    client.close();
  });

  test('S16 one leading dot of a line is removed, none after a bare LF', async () => {
    const { added } = await exchange(`${header}.x\r\n..\r\n...\r\na\n..\r\n.\r\n`);
    assert.deepEqual(added, [`${header}x\r\n.\r\n..\r\na\r\n..\r\n`]);
  });

  for (const [name, ending] of Object.entries({ ...nonEndings, 'CRLF.CRLF': '\r\n.\r\n' })) {
    test(`S36 ${name} in chunks of BDAT is text, and so is what follows it`, async () => {
      const before = new Set(await fixture.stored());
      const client = await fixture.greeted();
      await client.pipeline(['MAIL FROM:<a@sender.example>', 'RCPT TO:<postmaster@localhost>']);
      const [first, second] = [`${header}first${ending}`, `${smuggled}\r\n.\r\nQUIT\r\n`];
      client.write(`BDAT ${first.length}\r\n${first}BDAT ${second.length} LAST\r\n${second}NOOP\r\n`);
      const codes = (await watched(() => client.readReplies(3))).map(({ code }) => code);
      const isRefused = ending.includes('\0');
      assert.deepEqual(codes, isRefused ? [554, 554, 250] : [250, 250, 250]);
      assert.equal(client.unread, '');
      client.close();
      const added = (await fixture.stored()).filter((file) => !before.has(file));
      const text = `${first}${second}`.replaceAll(/\r\n|\r|\n/g, '\r\n');
      assert.deepEqual(
        added.map((file) => behindTrace(Buffer.from(file, 'latin1')).toString('latin1')),
        isRefused ? [] : [text],
      );
    });
  }

  test('S29 too many hops, and a message that was here before, are 554', async () => {
    const hop = 'Received: from a by b; Sat, 21 Nov 2026 00:00:00 +0000\r\n';
    assert.equal((await exchange(`${hop.repeat(100)}${header}.\r\n`)).said, '250 2.0.0');
    assert.deepEqual(await exchange(`${hop.repeat(101)}${header}.\r\n`), { said: '554 5.4.6', added: [] });
    const before = `Delivered-To: Postmaster@LOCALHOST\r\n${header}.\r\n`;
    assert.deepEqual(await exchange(before), { said: '554 5.4.6', added: [] });
  });

  for (const [name, text] of Object.entries(oddHeaders)) {
    test(`S30 a message of ${name} is stored as it is, and shown`, async () => {
      assert.deepEqual(await exchange(`${text}.\r\n`), { said: '250 2.0.0', added: [text] });
      await everyView();
    });
  }

  for (const [name, text] of Object.entries(hugeHeaders)) {
    test(`S30 a header of ${name} is 552, and nothing is stored`, async () => {
      assert.deepEqual(await exchange(`${text}.\r\n`), { said: '552 5.6.0', added: [] });
    });
  }

  for (const [name, bomb] of Object.entries(mimeBombs)) {
    test(`S31 a message of ${name} is stored as it is, listed and shown`, async () => {
      const text = bomb();
      const { said, added } = await exchange(`${text}.\r\n`);
      assert.equal(said, '250 2.0.0');
      assert.ok(added.length === 1 && added[0] === text);
      await everyView();
    });
  }

  test('S30 S31 every message is still in the list', async () => {
    assert.equal((await listMessages(fixture.server.admin)).length, (await fixture.stored()).length);
    await fixture.assertAlive();
  });

  /** Looks at the newest message as a page in each view, as JSON and raw; none of it holds up others. */
  async function everyView(): Promise<void> {
    const { admin } = fixture.server;
    const [newest] = await listMessages(admin);
    assert.ok(newest !== undefined);
    const path = `/store/localhost/postmaster/folders/INBOX/messages/${encodeURIComponent(newest.id)}`;
    assert.equal((await rawMessage(admin, newest.id)).length, newest.size);
    for (const view of ['', '?view=html', '?view=structure']) {
      assert.match(await watched(() => admin.page(`${path}${view}`)), /<html/);
    }
    assert.equal((await watched(() => admin.request(path, { accept: 'application/json' }))).status, 200);
    const html = await watched(() => admin.request(`${path}/html`, { accept: 'text/html' }));
    assert.ok([200, 404].includes(html.status));
  }
});
