import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { test } from 'node:test';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { temporaryFolder } from '../support/temporary-folder.js';

/** At the third one mail that was in hand each time would be held for an operator. */
const kills = 2;
const senders = 4;

const kindOf = (number: number): string => (number % 5 === 0 ? 'gone' : number % 3 === 0 ? 'later' : 'box');

/** Sends numbered mail until the server is gone; tells each number that got its 250. */
async function sendUntilDead(port: number, next: () => number, accepted: (number: number) => void): Promise<void> {
  try {
    const client = await SmtpClient.greeted({ port });
    for (;;) {
      const number = next();
      const name = `${kindOf(number)}-${number}`;
      await client.command('MAIL FROM:<postmaster@localhost>');
      if ((await client.command(`RCPT TO:<${name}@far.example>`)).code !== 250) return;
      const { code } = await client.data(`Subject: ${name}\r\nMessage-ID: <${number}@here>\r\n\r\n${number}\r\n`);
      if (code !== 250) return;
      accepted(number);
    }
  } catch {
    // The server is gone.
  }
}

test('whatever was accepted is delivered or returned to its sender, however often the server is killed', async (t) => {
  const deferredOnce = new Set<string>();
  const sink = await SmtpSink.start(t, {
    steps: {
      rcpt: ({ line }) => {
        if (/<gone-/.test(line)) return '550 5.1.1 Gone';
        if (!/<later-/.test(line) || deferredOnce.has(line)) return undefined;
        deferredOnce.add(line);
        return '450 4.2.0 Later';
      },
    },
  });
  const folder = await temporaryFolder(t);
  const config = `{
    smtp: { listeners: [{ port: 0 }], relayNetworks: ['127.0.0.0/8'] },
    plugins: { 'client-queue': {
      routes: { next: { mx: ['127.0.0.1'], port: ${sink.port}, tls: 'never' } },
      defaultRoute: 'next',
      retry: { firstSeconds: 1, maxSeconds: 1 },
      housekeepingInterval: 1,
    } },
  }`;
  const accepted = new Set<number>();
  let last = 0;
  for (let round = 0; round < kills; round += 1) {
    const server = await ServerProcess.start(t, { folder, config });
    const sending = Array.from({ length: senders }, () =>
      sendUntilDead(
        server.smtpPort,
        () => (last += 1),
        (number) => accepted.add(number),
      ),
    );
    const enough = accepted.size + 30 + round * 11;
    while (accepted.size < enough) await pause(3);
    await server.kill('SIGKILL');
    await Promise.all(sending);
  }

  const server = await ServerProcess.start(t, { folder, config });
  const admin = HttpClient.admin(server.http);
  const open = async (): Promise<number> => {
    const { total } = (await admin.json('/client/queue/list?limit=1')) as { total: number };
    return total;
  };
  while ((await open()) > 0) await pause(100);
  const expectedNotices = [...accepted].filter((number) => number % 5 === 0).length;
  const notices = async () =>
    (await listMessages(admin)).filter(({ subject }) => /could not be delivered/.test(subject));
  while ((await notices()).length < expectedNotices) await pause(100);

  const copies = new Map<number, number>();
  for (const { text } of sink.messages) {
    const number = Number(/^Message-ID: <(\d+)@here>/m.exec(String(text))?.[1]);
    copies.set(number, (copies.get(number) ?? 0) + 1);
  }
  assert.ok(accepted.size > 50, `${accepted.size} were accepted`);
  const lost = [...accepted].filter((number) => number % 5 !== 0 && !copies.has(number));
  assert.deepEqual(lost, []);
  const doubled = [...copies].filter(([, count]) => count > 1);
  // A kill may come between the other server's yes and ours: of those that were under way then.
  assert.ok(doubled.length <= kills * 40, `${doubled.length} came twice`);
  assert.ok(doubled.every(([, count]) => count <= kills + 1));

  const told = await notices();
  const ids = told.map(({ internetMessageId }) => internetMessageId);
  assert.equal(new Set(ids).size, ids.length, 'nobody is told twice');
  // What was queued and not acknowledged before a kill is told as well.
  assert.ok(
    told.length >= expectedNotices && told.length <= expectedNotices + kills * senders,
    `${told.length} notices`,
  );
  t.diagnostic(`${accepted.size} accepted, ${copies.size} delivered, ${doubled.length} twice, ${told.length} notices`);
});
