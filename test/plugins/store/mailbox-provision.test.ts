import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { MailUser } from '../../../core/contracts/directory.js';
import { parseMailboxName } from '../../../plugins/store/maildir/mailbox-name.js';
import { MailboxNames, MailboxProvision } from '../../../plugins/store/maildir/mailboxes.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { addressOf, openStore } from './delivery-fixture.js';

const username = 'anna@example.org';
const anna: MailUser = { username, address: addressOf(username), aliases: [], quota: null, disabled: false };
/** Takes letters for equal in either case, as the directory of `users.json` does. */
const directory = {
  find: (name: string) => (name.toLowerCase() === username ? anna : undefined),
  list: () => Promise.resolve([anna]),
};

test('a user has one mailbox, in whatever letters it is asked for', async (t) => {
  const { maildirs, mail } = await openStore(t);
  const names = new MailboxNames(directory, new MailboxProvision(maildirs, directory, rememberingLog().log));
  for (const user of ['ANNA', 'anna', 'Anna', 'aNNA']) {
    assert.equal((await names.parse({ domain: 'Example.org', user })).user, 'anna', user);
  }
  assert.deepEqual(await readdir(join(mail, 'example.org')), ['anna']);
});

test('a mailbox folder in other letters is still found by its own name, and every user has one', async (t) => {
  const { maildirs, mail } = await openStore(t);
  const names = new MailboxNames(directory, new MailboxProvision(maildirs, directory, rememberingLog().log));
  await maildirs.ensure(parseMailboxName({ domain: 'example.org', user: 'Anna' }));
  assert.equal((await names.parse({ domain: 'example.org', user: 'Anna' })).user, 'Anna');
  assert.equal((await names.parse({ domain: 'example.org', user: 'nobody' })).user, 'nobody');
  assert.deepEqual(await readdir(join(mail, 'example.org')), ['Anna']);
});
