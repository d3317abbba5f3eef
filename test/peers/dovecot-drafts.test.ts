import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { isRoot } from '../support/account.js';
import { lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import type { ImapClient } from '../support/imap-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { skipWithout } from '../support/peers.js';
import { BesideDovecot } from './dovecot-beside.js';
import { mailbox, user } from './dovecot-storm.js';

const suite = suiteEnding();
const skip = skipWithout('dovecot') || (isRoot() && skipWithout('setpriv'));
const whole = 'UID FETCH 1:* (UID FLAGS RFC822.SIZE BODY.PEEK[])';

interface Saved {
  readonly draftId: string;
  readonly size: number;
}

describe('what is written over HTTP, in a mail client', { skip }, () => {
  let beside: BesideDovecot;
  before(async () => {
    beside = await BesideDovecot.start(suite);
  });

  async function within<T>(folder: string, task: (client: ImapClient) => Promise<T>): Promise<T> {
    const client = await beside.imap();
    await client.command(`SELECT "${folder}"`);
    const result = await task(client);
    await client.logout();
    return result;
  }

  test('a draft is a draft of the right size, and each version takes the place of the one before', async () => {
    const path = `${mailbox}/drafts`;
    const { draftId } = (await beside.admin.json(path, { json: { subject: 'first', text: 'ä' } }, 201)) as Saved;
    const octets = { 'Content-Type': 'application/octet-stream' };
    const body = Buffer.alloc(100_000, 7);
    await beside.admin.json(`${path}/${draftId}/attachments?filename=f.bin`, { body, headers: octets }, 201);
    const json = { subject: 'second', text: 'ö' };
    const { size } = (await beside.admin.json(`${path}/${draftId}`, { method: 'PUT', json })) as Saved;
    const [draft, ...others] = await within('Drafts', (client) => client.fetch(whole));
    assert.ok(draft?.body !== undefined);
    assert.deepEqual(others, []);
    assert.deepEqual([draft.size, draft.body.length], [size, size]);
    assert.ok(draft.flags.includes('\\Draft') && draft.flags.includes('\\Seen'), draft.flags.join());
    assert.match(draft.body.toString('latin1'), /^Subject: second\r$/m);
  });

  test('a draft of a mail client is edited here, and both see in Sent what was sent', async () => {
    const path = `${mailbox}/drafts`;
    const text = lines('From: postmaster@localhost', 'To: postmaster@localhost', 'Subject: by a client', '', 'x');
    await within('Drafts', (client) => client.command(`APPEND Drafts (\\Draft \\Seen) {${text.length}+}\r\n${text}`));
    const { items } = (await beside.admin.json(path)) as { items: readonly (Saved & { subject: string })[] };
    const { draftId } = items.find(({ subject }) => subject === 'by a client') ?? {};
    await beside.admin.json(`${path}/${draftId}`, { method: 'PUT', json: { to: user, subject: 'edited here' } });
    await beside.admin.json(`${path}/${draftId}/send`, { method: 'POST' }, 202);
    const subjects = (all: readonly { body: Buffer | undefined }[]) =>
      all.map(({ body }) => /^Subject: (.*)\r$/m.exec(body?.toString('latin1') ?? '')?.[1]);
    assert.ok(!subjects(await within('Drafts', (client) => client.fetch(whole))).includes('edited here'));
    const sent = await within('Sent', (client) => client.fetch(whole));
    assert.deepEqual(subjects(sent), ['edited here']);
    assert.ok(sent[0]?.flags.includes('\\Seen') === true && !sent[0].flags.includes('\\Draft'));
  });

  test('a message that was filed has its size, its flags and every byte', async () => {
    const text = lines('Subject: filed', '', 'Grüße'.repeat(1000));
    const body = Buffer.from(text);
    const headers = { 'Content-Type': 'message/rfc822' };
    await beside.admin.json(`${mailbox}/folders/Archive/messages`, { body, headers }, 201);
    await beside.admin.json(`${mailbox}/folders/Archive/messages?unread=true`, { body, headers }, 201);
    const filed = await within('Archive', (client) => client.fetch(whole));
    assert.deepEqual(
      filed.map(({ size }) => size),
      [body.length, body.length],
    );
    assert.deepEqual(new Set(filed.map(({ flags }) => flags.includes('\\Seen'))), new Set([true, false]));
    for (const message of filed) assert.deepEqual(message.body, body);
  });

  test('keywords mean the same in the folder to which a message is moved', async () => {
    for (const name of ['Here', 'There']) await beside.admin.json(`${mailbox}/folders`, { json: { name } }, 201);
    const append = (folder: string, subject: string) => {
      const text = lines(`Subject: ${subject}`, '', 'x');
      return `APPEND ${folder} {${text.length}+}\r\n${text}`;
    };
    await within('There', async (client) => {
      await client.command(append('There', 'there already'));
      await client.command('STORE 1 +FLAGS (other $Forwarded)');
    });
    await within('Here', async (client) => {
      await client.command(append('Here', 'moves'));
      await client.command('STORE 1 +FLAGS ($Forwarded unknown \\Flagged)');
    });
    const [message] = await listMessages(beside.admin, 'localhost/postmaster', 'Here');
    const move = { fromFolder: 'Here', toFolder: 'There', messageIds: [message?.id] };
    await beside.admin.json(`${mailbox}/messages/move`, { json: move });
    const all = await within('There', (client) => client.fetch(whole));
    const found = all.find(({ body }) => body?.includes('Subject: moves') === true);
    const flags = found?.flags.filter((flag) => flag !== '\\Recent').toSorted();
    assert.deepEqual(flags, ['$Forwarded', '\\Flagged', 'unknown']);
  });

  test('Dovecot complains about nothing', async () => {
    assert.deepEqual(await beside.dovecot.complaints(), []);
  });
});
