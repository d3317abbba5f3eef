import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { test } from 'node:test';
import { maildirMessages } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const kills = 3;
const senders = 6;

/** Sends numbered mail to a mailbox, a server in line and one behind the queue; tells each number that got its 250. */
async function sendUntilDead(port: number, next: () => number, accepted: (number: number) => void): Promise<void> {
  try {
    const client = await SmtpClient.greeted({ port });
    for (;;) {
      const number = next();
      await client.command('MAIL FROM:<anna@sender.example>');
      for (const to of ['ben@one.example', 'postmaster@localhost', 'cleo@two.example']) {
        await client.command(`RCPT TO:<${to}>`);
      }
      const { code } = await client.data(`Message-ID: <${number}@here>\r\nSubject: ${number}\r\n\r\n${number}\r\n`);
      if (code === 250) accepted(number);
    }
  } catch {
    // The server is gone.
  }
}

const numberOf = (text: Buffer): number => Number(/^Message-ID: <(\d+)@here>/m.exec(text.toString())?.[1]);

test('mail to a mailbox and two servers is with all three, however often the server is killed', async (t) => {
  const one = await SmtpSink.start(t);
  const two = await SmtpSink.start(t);
  const folder = await temporaryFolder(t);
  const config = `{
    smtp: { listeners: [{ port: 0 }] },
    plugins: {
      'client-queue': { retry: { firstSeconds: 1, maxSeconds: 1 }, housekeepingInterval: 1 },
      proxy: { rules: [
        { name: 'one', rcpt: '.*@one\\\\.example', hosts: ['127.0.0.1:${one.port}'], tls: 'never' },
        { name: 'two', rcpt: '.*@two\\\\.example', hosts: ['127.0.0.1:${two.port}'], tls: 'never' },
      ] },
    },
  }`;
  const accepted = new Set<number>();
  let last = 0;
  for (let round = 0; round < kills; round += 1) {
    const server = await ServerProcess.start(t, { folder, config });
    const sending = Array.from({ length: senders }, () =>
      sendUntilDead(
        server.smtpPort,
        () => (last += 1),
        (number) => void accepted.add(number),
      ),
    );
    const before = accepted.size;
    while (accepted.size < before + 20) await pause(5);
    await pause(randomInt(0, 50));
    await server.kill('SIGKILL');
    await Promise.all(sending);
  }
  const server = await ServerProcess.start(t, { folder, config });
  const sunk = (sink: SmtpSink): ReadonlySet<number> => new Set(sink.messages.map(({ text }) => numberOf(text)));
  await two.until((sink) => [...accepted].every((number) => sunk(sink).has(number)));
  await server.kill('SIGTERM');
  const kept = await maildirMessages(join(folder, 'data', 'mail', 'localhost', 'postmaster'));
  const copies = kept.map((bytes) => numberOf(bytes));
  const missing = (there: ReadonlySet<number>) => [...accepted].filter((number) => !there.has(number));
  assert.deepEqual(missing(sunk(one)), []);
  assert.deepEqual(missing(new Set(copies)), []);
  assert.equal(new Set(copies).size, copies.length, 'nothing is in the mailbox twice');
  assert.ok(accepted.size >= kills * 20);
  const extra = [...sunk(one)].filter((number) => !accepted.has(number));
  assert.ok(
    extra.length <= kills * senders,
    `${extra.length} went out whose 250 was cut off, one for each session at most`,
  );
});
