import { systemClock } from '../../../../core/clock.js';
import { parseFolderName } from '../../../../plugins/store/folders/folder-name.js';
import { parseMailboxName } from '../../../../plugins/store/maildir/mailbox-name.js';
import { StoreReader } from '../../../../plugins/store/messages/store-reader.js';

/** Reads a mailbox and keeps what it read, again and again, until it is killed. Says so after each time. */
const [root = '', files = ''] = process.argv.slice(2);
const mailbox = parseMailboxName({ domain: 'example.org', user: 'ann' });

for (let round = 0; ; round++) {
  const reader = await StoreReader.open({ root, clock: systemClock, cache: { files, keptFrom: 5 } });
  await reader.list(mailbox, parseFolderName('INBOX'), { order: 'newest', limit: 1000, q: 'm' });
  await reader.close();
  process.stdout.write(`${round}\n`);
}
