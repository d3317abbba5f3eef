import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { allMailboxesHere } from '../../core/contracts/mailbox-owners.js';
import type { Mailboxes } from '../../core/contracts/mailboxes.js';
import { parseAddress } from '../../core/mime/address.js';
import { definePlugin, mailboxes } from '../../core/plugin.js';
import { MaildirTree } from '../../plugins/store/maildir/maildir.js';
import { mailboxService } from '../../plugins/store/messages/mailbox-service.js';
import { drive } from '../kit/index.js';
import { EditingFixture } from '../plugins/store/editing-fixture.js';
import type { Ending } from '../support/ending.js';

const message = (subject: string) => Readable.from([Buffer.from(`Subject: ${subject}\r\n\r\nHello\r\n`)]);

/** The service of the store on the disk, and that of the kit. */
const services: Readonly<
  Record<string, (test: Ending) => Promise<{ readonly service: Mailboxes; readonly address: string }>>
> = {
  async 'on the disk'(test) {
    const { reading, editor, mailbox } = await EditingFixture.open(test);
    const maildirs = new MaildirTree(reading.root);
    const service = mailboxService({ maildirs, reader: reading.reader, editor, owners: allMailboxesHere });
    return { service, address: `${mailbox.user}@${mailbox.domain}` };
  },
  async 'in memory'(test) {
    let service: Mailboxes | undefined;
    const plugin = definePlugin({
      name: 'clerk',
      needs: { mailboxes },
      setup: (_, given) => void (service = given.mailboxes),
    });
    await drive(plugin, { test });
    assert.ok(service);
    return { service, address: 'anna@example.org' };
  },
};

describe('the service of mailboxes', () => {
  for (const [where, open] of Object.entries(services)) {
    test(`appends, lists, reads, marks and files messages ${where}`, async (t) => {
      const { service, address } = await open(t);
      const mailbox = parseAddress(address);
      await service.ensure(mailbox);
      assert.deepEqual(await service.list(), [address]);
      const id = await service.append(mailbox, 'INBOX', message('One'));
      await service.append(mailbox, 'INBOX', message('Two'), { read: true });
      const { items } = await service.messages(mailbox, 'INBOX');
      assert.deepEqual(
        new Set(items.map(({ subject, unread }) => `${subject} ${unread}`)),
        new Set(['One true', 'Two false']),
      );
      assert.equal(await text(await service.read(mailbox, 'INBOX', id)), 'Subject: One\r\n\r\nHello\r\n');
      assert.deepEqual(await service.mark(mailbox, 'INBOX', [id, 'none'], 'flag'), ['none']);
      const moved = await service.file(mailbox, 'INBOX', 'Trash', [id]);
      const [filed] = (await service.messages(mailbox, 'Trash')).items;
      assert.deepEqual([filed?.id, filed?.flagged, filed?.unread], [moved[id], true, true]);
      const counts = new Map(
        (await service.folders(mailbox)).map(({ name, total, unread }) => [name, [total, unread]]),
      );
      assert.deepEqual(
        [counts.get('INBOX'), counts.get('Trash')],
        [
          [1, 0],
          [1, 1],
        ],
      );
      await assert.rejects(service.read(mailbox, 'INBOX', id), { problem: 'not-found' });
      await assert.rejects(service.append(mailbox, 'INBOX', Readable.from([])), { problem: 'invalid' });
    });

    test(`divides a folder into pages ${where}`, async (t) => {
      const { service, address } = await open(t);
      const mailbox = parseAddress(address);
      await service.ensure(mailbox);
      for (const subject of ['a', 'b', 'c']) await service.append(mailbox, 'INBOX', message(subject));
      const first = await service.messages(mailbox, 'INBOX', { limit: 2 });
      assert.ok(first.nextCursor);
      const second = await service.messages(mailbox, 'INBOX', { limit: 2, cursor: first.nextCursor });
      const subjects = [...first.items, ...second.items].map(({ subject }) => subject);
      assert.deepEqual([first.items.length, subjects.toSorted(), second.nextCursor], [2, ['a', 'b', 'c'], null]);
    });
  }
});
