import { randomInt } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { ImapClient } from '../support/imap-client.js';
import type { HttpClient } from '../support/http-client.js';
import type { ListedMessage } from '../support/mailbox-reader.js';
import { SmtpClient } from '../support/smtp-client.js';
import { type Composed, imapMovers, isMovedBy, type Ledger, type Mover, tokenOf } from './dovecot-ledger.js';

export interface StormFixture {
  readonly admin: HttpClient;
  readonly smtpPort: number;
  readonly imapPort: number;
  /** Folders by the name that the API has for them, and the one that IMAP has. */
  readonly folders: readonly (readonly [api: string, imap: string])[];
  readonly ledger: Ledger;
}

export const mailbox = '/store/localhost/postmaster';
export const user = 'postmaster@localhost';
const flags = ['\\Flagged', '\\Answered', '\\Seen', '$Forwarded', '$Label1'];

const pick = <T>(list: readonly T[]): T => {
  const found = list[randomInt(Math.max(1, list.length))];
  if (found === undefined) throw new Error('there is nothing to pick from');
  return found;
};

/** Does what it is given again and again; a conflict with another program is no failure. Answers how often it went well. */
async function repeat(until: number, isConflict: (error: unknown) => boolean, act: () => Promise<void>) {
  let done = 0;
  while (performance.now() < until) {
    try {
      await act();
      done += 1;
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
    await pause(1);
  }
  return done;
}

const isNo = (error: unknown): boolean =>
  error instanceof Error && / NO | BAD Error in IMAP command/.test(error.message);

/** A mail client: marks, moves, expunges and appends. */
async function imapActor({ imapPort, folders, ledger }: StormFixture, until: number, self: Mover): Promise<number> {
  const client = await ImapClient.open(imapPort, user);
  const done = await repeat(until, isNo, async () => {
    const [, folder] = pick(folders);
    if (randomInt(5) === 0) {
      const { token, text } = ledger.compose(self);
      await client.command(`APPEND "${folder}" (\\Seen) {${text.length}+}\r\n${text}`);
      ledger.made(token, text);
      return;
    }
    await client.command(`SELECT "${folder}"`);
    const all = await client.fetch('UID FETCH 1:* (UID FLAGS BODY.PEEK[HEADER.FIELDS (MESSAGE-ID)])');
    if (all.length === 0) return;
    const { uid, body } = pick(all);
    const token = tokenOf(body ?? '');
    const turn = randomInt(10);
    if (turn < 6) await client.command(`UID STORE ${uid} ${pick(['+', '-'])}FLAGS (${pick(flags)})`);
    else if (turn < 9) {
      if (isMovedBy(self, token)) await client.command(`UID MOVE ${uid} "${pick(folders)[1]}"`);
    } else {
      ledger.deleting(token);
      await client.command(`UID STORE ${uid} +FLAGS (\\Deleted)`);
      await client.command(`UID EXPUNGE ${uid}`);
    }
  });
  await client.logout();
  return done;
}

const tokenOfListed = ({ internetMessageId }: ListedMessage): string => tokenOf(`Message-ID: ${internetMessageId}`);

/** A script: moves, marks, deletes and files over HTTP. */
async function apiActor({ admin, folders, ledger }: StormFixture, until: number): Promise<number> {
  const call = async (path: string, json: object) => {
    const { status, text } = await admin.request(`${mailbox}/${path}`, { json });
    if (status !== 200) throw new Error(`${path}: ${status} ${text}`);
  };
  return repeat(
    until,
    () => false,
    async () => {
      const [folder] = pick(folders);
      const place = `folders/${encodeURIComponent(folder)}`;
      if (randomInt(5) === 0) {
        const { token, text } = ledger.compose('api');
        const headers = { 'Content-Type': 'message/rfc822' };
        const { status } = await admin.request(`${mailbox}/${place}/messages`, { body: text, headers });
        if (status !== 201) throw new Error(`append: ${status}`);
        ledger.made(token, text);
        return;
      }
      const page = (await admin.json(`${mailbox}/${place}?limit=200`)) as { items: readonly ListedMessage[] };
      const some = page.items.filter(() => randomInt(4) === 0).slice(0, 5);
      const messageIds = some.map(({ id }) => id);
      const own = some.filter((message) => isMovedBy('api', tokenOfListed(message))).map(({ id }) => id);
      const turn = randomInt(10);
      if (turn === 0) await call('messages/mark-all-read', { folder });
      else if (messageIds.length === 0) return;
      else if (turn < 5) await call('messages/read-status', { folder, action: pick(['read', 'unread']), messageIds });
      else if (turn < 9) {
        const toFolder = pick(folders)[0];
        if (own.length > 0 && toFolder !== folder) {
          await call('messages/move', { fromFolder: folder, toFolder, messageIds: own });
        }
      } else {
        const [first] = some;
        if (first === undefined) return;
        ledger.deleting(tokenOfListed(first));
        await call('messages/delete', { folder, messageIds: [first.id], permanent: true });
      }
    },
  );
}

/** Somebody who writes: drafts are begun, saved again, given files and discarded, while a mail client marks them. */
async function draftActor({ admin, ledger }: StormFixture, until: number): Promise<number> {
  const drafts: { readonly draftId: string; readonly token: string }[] = [];
  const path = `${mailbox}/drafts`;
  return repeat(
    until,
    () => false,
    async () => {
      if (drafts.length < 3 || randomInt(12) === 0) {
        const { token, text } = ledger.compose('api');
        const headers = { 'Content-Type': 'message/rfc822' };
        const { draftId } = (await admin.json(path, { body: text, headers }, 201)) as { draftId: string };
        ledger.made(token);
        drafts.push({ draftId, token });
        return;
      }
      const { draftId, token } = pick(drafts);
      const turn = randomInt(10);
      if (turn < 6) await admin.json(`${path}/${draftId}`, { method: 'PUT', json: { subject: `${token} ${Date()}` } });
      else if (turn < 9) {
        const headers = { 'Content-Type': 'application/octet-stream' };
        await admin.json(`${path}/${draftId}/attachments?filename=f`, { body: token.repeat(500), headers }, 201);
      } else {
        ledger.deleting(token);
        drafts.splice(
          drafts.findIndex((draft) => draft.draftId === draftId),
          1,
        );
        await admin.json(`${path}/${draftId}`, { method: 'DELETE' });
      }
    },
  );
}

/** A mail client that looks at drafts and marks them. */
async function draftReader({ imapPort }: StormFixture, until: number): Promise<number> {
  const client = await ImapClient.open(imapPort, user);
  const done = await repeat(until, isNo, async () => {
    await client.command('SELECT Drafts');
    const all = await client.fetch('UID FETCH 1:* (UID FLAGS RFC822.SIZE BODY.PEEK[])');
    for (const { body, size, uid } of all) {
      if (body !== undefined && body.length !== size) throw new Error(`draft ${uid}: ${body.length} of ${size} bytes`);
    }
    if (all.length > 0) await client.command(`UID STORE ${pick(all).uid} ${pick(['+', '-'])}FLAGS (\\Flagged)`);
  });
  await client.logout();
  return done;
}

async function sendOne(client: SmtpClient, { text }: Composed): Promise<void> {
  const replies = await client.pipeline(['MAIL FROM:<a@storm.example>', 'RCPT TO:<postmaster@localhost>']);
  if (replies.some(({ code }) => code !== 250)) throw new Error(replies.map(({ raw }) => raw).join(''));
  const { code, raw } = await client.data(text);
  if (code !== 250) throw new Error(raw);
}

async function smtpActor({ smtpPort, ledger }: StormFixture, until: number): Promise<number> {
  const client = await SmtpClient.greeted({ port: smtpPort });
  const done = await repeat(
    until,
    () => false,
    async () => {
      const composed = ledger.compose(pick(['api', ...imapMovers]));
      await sendOne(client, composed);
      ledger.made(composed.token, composed.text);
      await pause(20);
    },
  );
  client.close();
  return done;
}

/** Everybody at the same mailbox at once, for so many seconds. Answers how much each kind of client did. */
export async function storm(fixture: StormFixture, seconds: number): Promise<Readonly<Record<string, number>>> {
  const until = performance.now() + seconds * 1000;
  const sum = async (actors: readonly Promise<number>[]) => (await Promise.all(actors)).reduce((a, b) => a + b, 0);
  const [imap, api, drafts, draftReaders, smtp] = await Promise.all([
    sum(imapMovers.map((self) => imapActor(fixture, until, self))),
    sum([apiActor(fixture, until), apiActor(fixture, until)]),
    draftActor(fixture, until),
    draftReader(fixture, until),
    smtpActor(fixture, until),
  ]);
  return { imap, api, drafts, draftReaders, smtp };
}
