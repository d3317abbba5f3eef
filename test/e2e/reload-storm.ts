import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { deliver, lines } from '../support/delivery.js';
import type { Ending } from '../support/ending.js';
import { freePort } from '../support/free-port.js';
import { startInProcess } from '../support/in-process-server.js';
import { listMessages } from '../support/mailbox-reader.js';
import { SmtpClient } from '../support/smtp-client.js';

export interface Storm {
  /** At least so many. */
  readonly reloads: number;
  /** At least so many of each of the four senders, who open a session for each. */
  readonly messages: number;
}

/** Every time other limits, domains and accounts, another listener beside, and another one behind the port of the senders. */
const configuration = (port: number, turn: number): string => `{
  domains: ['localhost', 'd${turn}.example'],
  http: { accounts: [{ username: 'boss', password: 'own', role: 'admin' }, { username: 'u${turn % 3}', password: 'p${turn % 2}', role: 'read' }] },
  smtp: {
    listeners: [
      { port: ${port}, allowPlaintextAuth: ${turn % 2 === 0} },
      { name: 'beside-${turn % 3}', mode: ${turn % 2 === 0 ? "'lmtp'" : "'submission'"}, port: 0 },
    ],
    limits: { messageBytes: ${1_000_000 + turn} },
  },
}`;

/** Reloads again and again while mail comes in: no session is dropped, no message is refused, lost or there twice. */
export async function rideOut(ending: Ending, { reloads, messages }: Storm): Promise<void> {
  const port = await freePort();
  const server = await startInProcess(ending, configuration(port, 0));
  const sitting = await SmtpClient.greeted({ port });
  const sent = new AbortController();
  const done = { reloads: 0, sent: 0 };
  const storm = (async () => {
    for (let turn = 1; !sent.signal.aborted; turn += 1) {
      await writeFile(join(server.folder, 'postern.json5'), configuration(port, turn));
      const { status, text } = await server.admin.request('/config/reload', { method: 'POST', json: {} });
      assert.equal(status, 200, text);
      done.reloads += 1;
    }
  })();
  const isOver = (count: number): boolean => count >= messages && done.reloads >= reloads;
  const senders = Array.from({ length: 4 }, async (_, sender) => {
    for (let count = 0; !isOver(count); count += 1) {
      await deliver(port, lines(`Subject: ${sender}-${count}`, '', 'in the storm'));
      done.sent += 1;
    }
  });
  const sitter = (async () => {
    for (let count = 0; !isOver(count); count += 1) {
      assert.equal((await sitting.command('MAIL FROM:<anna@example.org>')).code, 250);
      assert.equal((await sitting.command('RCPT TO:<postmaster@localhost>')).code, 250);
      assert.equal((await sitting.data(lines(`Subject: sitting-${count}`, '', 'in one session'))).code, 250);
      done.sent += 1;
    }
  })();
  // Whichever side fails is told at once; neither waits for the other.
  await Promise.race([Promise.all([...senders, sitter]), storm]);
  sent.abort();
  await storm;
  assert.equal((await sitting.command('QUIT')).code, 221);
  sitting.close();
  const subjects = (await listMessages(server.admin)).map(({ subject }) => subject);
  assert.equal(new Set(subjects).size, done.sent);
  assert.equal(subjects.length, done.sent);
}
