import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { HttpLoad, HttpResult } from './http-load.js';
import { authorization, type Site } from './site.js';
import type { SteadyLoad } from './steady-sender.js';
import { printTable } from './table.js';

export const mailDomain = 'bench.example';
const mailboxes = 10;
const rates = [500, 1000, 3000];
const sessions = 50;
/** Four readers, each with a look at the page in between. */
const readers = { connections: 4, pauseMs: 20, headers: { accept: 'text/html', authorization } };
/** Until mail comes in steadily. */
const settleMs = 500;

const mailboxOf = (index: number): string => `user${index}@${mailDomain}`;
const pages = [
  { title: 'folder without new mail', path: '/store/localhost/postmaster/folders/INBOX' },
  { title: 'folder that gets a tenth of it', path: `/store/${mailDomain}/user0/folders/INBOX` },
  { title: 'overview', path: '/' },
];

/** Times of answers of pages while mail comes in at a fixed rate. */
export async function pagesUnderMail(site: Site, requests: number): Promise<void> {
  for (let index = 0; index < mailboxes; index += 1) await createMailbox(site, mailboxOf(index));
  const rows: string[][] = [];
  for (const perSecond of rates) {
    for (const { title, path } of pages) {
      const recipients = Array.from({ length: mailboxes }, (_, index) => mailboxOf(index));
      const mail = start('./steady-sender.js', { port: site.smtpPort, perSecond, sessions, recipients });
      await pause(settleMs);
      const load = { ...readers, port: site.port, path, requests };
      const { p50, p99 } = JSON.parse(await start('./http-load.js', load).output) as HttpResult;
      mail.child.kill('SIGTERM');
      const sent = Number(await mail.output);
      rows.push([title, String(perSecond), sent.toFixed(0), p50.toFixed(1), p99.toFixed(1)]);
      process.stderr.write(`${rows.at(-1)?.join('  ')}\n`);
    }
  }
  printTable(['page under mail', 'msg/s wanted', 'msg/s', 'p50 ms', 'p99 ms'], rows);
}

async function createMailbox({ port }: Site, username: string): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${port}/users`, {
    method: 'POST',
    headers: { authorization, 'content-type': 'application/json' },
    body: JSON.stringify({ username, password: 'the password of a mailbox' }),
  });
  if (response.status !== 201) throw new Error(`a mailbox was not created: ${await response.text()}`);
}

function start(script: string, load: HttpLoad | SteadyLoad) {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const child = spawn(process.execPath, [path, JSON.stringify(load)], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (piece: string) => (text += piece));
  return { child, output: once(child, 'close').then(() => text) };
}
