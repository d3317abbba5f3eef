/**
 * A process that delivers and prints the number of each message once it is acknowledged, to be killed. Every seventh is
 * taken back again; then its number is printed with a minus.
 * Arguments: the data folder, a word that is in every message, the durability, and after how many messages it ends;
 * without that it goes on without end.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../../../core/clock.js';
import { openSpool } from '../../../core/spool/file-spool.js';
import { WriteHealth } from '../../../core/spool/health.js';
import { maildirTarget } from '../../../plugins/store/delivery/delivery.js';
import { placedMessageFinder } from '../../../plugins/store/delivery/message-finder.js';
import { UniqueNames } from '../../../plugins/store/maildir/maildir-name.js';
import { MaildirTree } from '../../../plugins/store/maildir/maildir.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { prologue, recipient, transactionOf } from './delivery-fixture.js';
import { numberedMessage } from './numbered-message.js';

const [, , data = '', word = '', durability, limit] = process.argv;
const most = limit === undefined ? Infinity : Number(limit);
const { log } = rememberingLog();
const spool = await openSpool(join(data, 'spool'), {
  log,
  reserveBytes: 0,
  durability: durability === 'log' ? 'log' : 'file',
  // Small, so that a kill hits segments that change and checkpoints that run.
  segmentBytes: 1024 * 1024,
  checkpointMs: 50,
});
await mkdir(join(data, 'mail'), { recursive: true });
const target = maildirTarget({
  maildirs: new MaildirTree(join(data, 'mail')),
  names: new UniqueNames({ host: 'mail.example.org', clock: systemClock }),
  health: new WriteHealth(join(data, 'mail')),
  metrics: { delivered: () => undefined, failed: () => undefined },
  clock: systemClock,
  log,
});
await spool.recover(() => placedMessageFinder(join(data, 'mail')));
const recipients = [recipient('ann@example.org'), recipient('bob@example.org')];
let count = 0;

async function deliver(): Promise<void> {
  while (count < most) {
    const number = ++count;
    const writer = await spool.create(prologue.returnPath, prologue.trace);
    await writer.write(numberedMessage(word, number));
    const message = await writer.finish();
    const delivery = await target.start(transactionOf(recipients), recipients);
    await delivery.body(message);
    await delivery.commit();
    if (number % 7 === 0) await delivery.abort();
    process.stdout.write(`${number % 7 === 0 ? -number : number}\n`);
    await message.release();
  }
}

await Promise.all(Array.from({ length: limit === undefined ? 20 : 3 }, deliver));
await spool.close();
