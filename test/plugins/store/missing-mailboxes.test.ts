import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Directory, MailUser } from '../../../core/contracts/directory.js';
import { mailboxNameOfUser } from '../../../plugins/store/maildir/mailbox-name.js';
import { createMissingMailboxes } from '../../../plugins/store/maildir/mailboxes.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { addressOf, openStore } from './delivery-fixture.js';

test('every user gets a mailbox at start, and one that cannot be made does not stop the others', async (t) => {
  const { maildirs, mail } = await openStore(t);
  await writeFile(join(mail, 'broken.example'), 'a file in the place of a domain');
  const names = Array.from({ length: 100 }, (_, n) => `user${n}@example.org`);
  const { log, sentences } = rememberingLog();
  await createMissingMailboxes(maildirs, directoryOf([...names, 'x@broken.example', 'y@[127.0.0.1]']), log);
  for (const name of names) assert.equal(await maildirs.exists(mailboxNameOfUser(name)), true, name);
  assert.equal(sentences.length, 2);
});

function directoryOf(usernames: readonly string[]): Directory {
  const users = usernames.map((username): MailUser => ({
    username,
    address: addressOf(username),
    aliases: [],
    quota: null,
    disabled: false,
  }));
  const nobody = (): Promise<undefined> => Promise.resolve(undefined);
  return { source: 'a test', list: () => Promise.resolve(users), resolve: nobody, find: nobody, authenticate: nobody };
}
