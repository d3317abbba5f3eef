import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { HttpClient } from '../support/http-client.js';
import { until } from '../support/until.js';

const mailbox = '/store/localhost/ann';
const letter = (n: number) => `From: Bob ${n} <bob@example.org>\r
To: ann@localhost, carl@example.org\r
Subject: Letter ${n}\r
Message-ID: <${n}-${Date.now()}@example.org>\r
Content-Type: text/html\r
\r
<p>Good day.</p>\r
`;

/** Brings back whatever presses have taken away: users, folders, mail, drafts, entries of each state, files in quarantine, a heap dump. */
export async function fill(folder: string, admin: HttpClient): Promise<void> {
  const list = async (path: string) => (await admin.json(path)) as { total: number; items: { name: string }[] };
  const post = (path: string, json: unknown) => admin.request(path, { accept: 'application/json', json });
  for (const username of ['ann@localhost', 'ben@localhost']) await post('/users', { username });
  // Folders that presses have made would be further options of every list.
  for (const { name } of (await list(`${mailbox}/folders`)).items.filter((one) =>
    /^(?:Folder|Copy) |\./.test(one.name),
  ))
    await admin.request(`${mailbox}/folders/${encodeURIComponent(name)}?recursive=true`, { method: 'DELETE' });
  for (const name of ['Projects', 'Trash', 'Junk']) await post(`${mailbox}/folders`, { name });
  const headers = { 'Content-Type': 'message/rfc822' };
  for (const name of ['INBOX', 'Projects', 'Trash', 'Junk']) {
    const path = `${mailbox}/folders/${name}`;
    for (let n = (await list(path)).total; n < 4; n += 1)
      await admin.request(`${path}/messages?unread=${n % 2 === 1}`, { body: letter(n), headers });
  }
  for (let n = (await list(`${mailbox}/drafts`)).total; n < 3; n += 1) {
    const draft = { to: ['ann@localhost'], subject: `Draft ${n}`, text: 'x' };
    const { draftId } = (await admin.json(`${mailbox}/drafts`, { json: draft }, 201)) as { draftId: string };
    await admin.request(`${mailbox}/drafts/${draftId}/attachments?filename=a.txt`, { body: 'x' });
  }
  await fillQueue(admin);
  const keep = async (place: string, name: string, content: string) => {
    await mkdir(join(folder, 'data', place), { recursive: true });
    await writeFile(join(folder, 'data', place, name), content);
  };
  for (const name of ['one.eml', 'two.eml']) await keep('queue/quarantine', name, letter(9));
  await keep('heapdumps', `heap-20261121T000000-${'a'.repeat(20)}.heapsnapshot`, '{}');
  // The list counts what is in the folder.
  await admin.json('/client/queue/quarantine');
}

/** Mail that is deferred, mail that is held, and a destination that is suspended. */
async function fillQueue(admin: HttpClient): Promise<void> {
  const list = async (path: string) =>
    (await admin.json(path)) as { total: number; items: { destination: string; suspended: boolean }[] };
  const queue = async (...rcpt: string[]) => {
    const envelopes = [{ mail: 'ann@localhost', rcpt, subject: 'Out', text: 'x' }];
    return (await admin.json('/client/queue', { json: { envelopes } }, 202)) as { uid: string };
  };
  const suspend = (name: string, suspendFor: number) =>
    admin.json(`/client/destinations/${name}`, { method: 'PUT', json: { suspendFor } });
  for (const { destination, suspended } of (await list('/client/destinations')).items)
    if (suspended && destination !== 'route:busy') await suspend(destination, 0);
  await suspend('route:busy', 3600);
  if ((await list('/client/queue/list?state=queued')).total === 0) await queue('bob@busy.example');
  for (const [state, least] of [
    ['deferred', 3],
    ['held', 2],
  ] as const) {
    for (let n = (await list(`/client/queue/list?state=${state}`)).total; n < least; n += 1) {
      const { uid } = await queue('bob@dead.example', 'bob@gone.example');
      const stateOf = async () => ((await admin.json(`/client/queue/${uid}`)) as { state: string }).state;
      await until('the first attempt', async () => ((await stateOf()) === 'deferred' ? true : undefined));
      if (state === 'held') await admin.json('/client/queue/hold', { json: { uid } });
    }
  }
}
