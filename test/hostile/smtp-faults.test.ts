import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import { SmtpClient } from '../support/smtp-client.js';
import { untilTrue } from '../support/until.js';
import { faultyPlugin } from './faulty-plugin.js';
import { header, SmtpFixture } from './smtp-fixture.js';

const suite = suiteEnding();
const faults = ['throws-enospc', 'rejects-eio', 'throws-emfile', 'rejects-erofs', 'never', 'odd', 'nothing'];
const temporary = /^4[25]1 4\.3\.\d (?!.*(?:srv|secret|ENOSPC|EIO|EMFILE|EROFS))|^452 4\.3\.1 (?!.*(?:srv|secret))/;
const plain = (name: string) => `AUTH PLAIN ${Buffer.from(`\0${name}\0x`).toString('base64')}`;

describe('faults of our own against the whole server', () => {
  let fixture: SmtpFixture;
  before(async () => {
    const listeners = [
      { mode: 'mx', port: 0 },
      { mode: 'submission', port: 0, allowPlaintextAuth: true },
      { mode: 'lmtp', port: 0 },
      ...faults.map((fault) => ({ name: `connect.${fault}`, mode: 'mx', port: 0 })),
    ];
    const limits = { deliverySeconds: 1, authDelaySeconds: [], authFailures: 1000, errors: 1000 };
    fixture = await SmtpFixture.start(suite, { listeners, limits }, { sitePlugins: ['./faulty.js'] }, (folder) =>
      writeFile(join(folder, 'faulty.js'), faultyPlugin),
    );
  });

  /** The session goes on, unless it was told that it ends, and somebody else is served. */
  async function goesOn(client: SmtpClient): Promise<void> {
    assert.equal(client.unread, '');
    client.close();
    await fixture.assertAlive();
  }

  for (const fault of faults) {
    test(`S27 a hook that ${fault} is temporary at each stage, and names no path`, async () => {
      const connected = await SmtpClient.connect({ port: fixture.server.portOf(`connect.${fault}`) });
      assert.match((await connected.readReply()).raw, temporary);
      await connected.waitForEnd();
      await goesOn(connected);

      const hello = await fixture.connect();
      await hello.readReply();
      assert.match((await hello.command(`EHLO ehlo.${fault}`)).raw, temporary);
      await goesOn(hello);

      const submission = await fixture.greeted('submission');
      assert.match((await submission.command(plain(`auth.${fault}@localhost`))).raw, temporary);
      await goesOn(submission);

      const client = await fixture.greeted();
      assert.match((await client.command(`MAIL FROM:<mailfrom.${fault}@sender.example>`)).raw, temporary);
      assert.equal((await client.command('MAIL FROM:<a@sender.example>')).code, 250);
      assert.match((await client.command(`RCPT TO:<rcptto.${fault}@localhost>`)).raw, temporary);
      assert.equal((await client.command('RCPT TO:<postmaster@localhost>')).code, 250);
      await goesOn(client);
    });

    test(`S27 a message whose hook or delivery ${fault} is temporary, and nothing of it is stored`, async () => {
      const stored = (await fixture.stored()).length;
      const spooled = await fixture.spooled();
      for (const stage of ['message', 'deliver', 'start', 'body', 'commit']) {
        // A step of a delivery answers with nothing when all is well.
        if (['odd', 'nothing'].includes(fault) && !['message', 'deliver'].includes(stage)) continue;
        const client = await fixture.greeted();
        const replies = await client.pipeline([
          `MAIL FROM:<${stage}.${fault}@sender.example>`,
          'RCPT TO:<postmaster@localhost>',
          'RCPT TO:<x@target.example>',
        ]);
        assert.deepEqual(new Set(replies.map(({ code }) => code)), new Set([250]));
        assert.match((await client.data(`${header}x`)).raw, temporary, stage);
        await goesOn(client);
      }
      // A delivery that runs out of time is rolled back after its reply.
      await untilTrue('nothing is stored', async () => {
        const now = await fixture.stored().catch(() => undefined);
        return now?.length === stored;
      });
      // What a delivery that never ends may still be reading is kept for it.
      if (fault !== 'never') assert.equal(await fixture.spooled(), spooled);
    });
  }
});

describe('LMTP against the whole server', () => {
  let fixture: SmtpFixture;
  before(async () => {
    fixture = await SmtpFixture.start(suite, { limits: { messageBytes: 10_000 } });
    await fixture.addUser('anna@localhost');
  });
  const recipients = ['postmaster', 'anna', 'nobody', 'postmaster', 'ANNA'];

  test('S28 answers once for each recipient that it took, the same one twice included', async () => {
    const client = await fixture.greeted('lmtp');
    const replies = await client.pipeline([
      'MAIL FROM:<a@sender.example>',
      ...recipients.map((name) => `RCPT TO:<${name}@localhost>`),
      'DATA',
    ]);
    assert.deepEqual(
      replies.map(({ code }) => code),
      [250, 250, 250, 550, 250, 250, 354],
    );
    client.write(`${header}one each\r\n.\r\n`);
    assert.deepEqual(
      (await client.readReplies(4)).map(({ code }) => code),
      [250, 250, 250, 250],
    );
    assert.equal((await client.command('NOOP')).code, 250);
    assert.equal((await fixture.stored()).filter((file) => file.includes('one each')).length, 2);
    client.close();
  });

  test('S28 has no DATA without a recipient, and no EHLO', async () => {
    const client = await fixture.connect('lmtp');
    await client.readReply();
    for (const hello of ['EHLO', 'HELO']) assert.equal((await client.command(`${hello} c.example`)).code, 500);
    await client.command('LHLO c.example');
    await client.command('MAIL FROM:<>');
    assert.equal((await client.command('RCPT TO:<nobody@localhost>')).code, 550);
    assert.match((await client.command('DATA')).raw, /^503 5\.5\.1 /);
    client.close();
  });

  test('S28 refuses what is too large for each recipient, and reads none of it as commands', async () => {
    const stored = (await fixture.stored()).length;
    const client = await fixture.greeted('lmtp');
    await fixture.toData(client, 'postmaster@localhost', 'anna@localhost', 'postmaster@localhost');
    const line = `${'x'.repeat(98)}\r\n`;
    client.write(`${header}${line.repeat(105)}MAIL FROM:<evil@sender.example>\r\n.\r\nNOOP\r\n`);
    assert.deepEqual(
      (await client.readReplies(4)).map(({ code }) => code),
      [552, 552, 552, 250],
    );
    assert.equal(client.unread, '');
    assert.equal((await fixture.stored()).length, stored);
    client.close();
  });
});
