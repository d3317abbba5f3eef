/**
 * Queues and delivers messages in a data folder until it is killed: `node queueing-process.js DATA DURABILITY FIRST COUNT`.
 * Prints `accepted UID` when an entry is promised, `sent UID` before a server would be told, `settled UID FATE` when that is
 * written down, `deleted UID` for what an operator has deleted.
 */
import { writeSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../../../../core/clock.js';
import { openSpool } from '../../../../core/spool/file-spool.js';
import { openRelayQueue } from '../../../../plugins/client-queue/queue/open-relay-queue.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { claiming, newEntry, settlement } from '../../../kit/relay-queue/entries.js';

const [data = '', durability = 'file', first = '0', count = '20'] = process.argv.slice(2);
const { log } = rememberingLog();
const say = (line: string): void => void writeSync(1, `${line}\n`);

const spool = await openSpool(join(data, 'spool'), {
  log,
  reserveBytes: 0,
  durability: durability === 'log' ? 'log' : 'file',
  checkpointMs: 20,
});
const queue = await openRelayQueue({
  folder: join(data, 'queue'),
  clock: systemClock,
  log,
  keepFinishedMs: 1e9,
  maxEntries: 1e6,
  segmentBytes: 64 * 1024,
  // Short, so that snapshots are killed too.
  journalBytes: 5000,
  spreadMs: 1,
});
await spool.recover();
await queue.housekeep(systemClock.now());

for (let number = Number(first); number < Number(first) + Number(count); number++) await handle(number);
await queue.close();
await spool.close();

async function handle(number: number): Promise<void> {
  await accept(number);
  const leases = await queue.claim(claiming(systemClock.now(), { limit: 3 }));
  for (const lease of leases) {
    const fate = (['delivered', 'deferred', 'bounced'] as const)[number % 3] ?? 'delivered';
    if (fate === 'delivered') say(`sent ${lease.uid} ${lease.recipients.map(({ index }) => index).join()}`);
    await queue.settle(lease, settlement(lease, fate, { at: systemClock.now(), nextAttempt: systemClock.now() }));
    say(`settled ${lease.uid} ${fate} ${lease.recipients.map(({ index }) => index).join()}`);
  }
  for (const { entry, notice } of await queue.notices(5)) await queue.noticed(entry.uid, [notice.id]);
  if (number % 5 === 4) {
    const { items } = await queue.list({ filter: {}, limit: 1, sort: 'queuedAt', order: 'asc' });
    const [oldest] = items;
    if (oldest === undefined) return;
    say(`deleting ${oldest.uid}`);
    await queue.mutate({ uids: [oldest.uid] }, { operation: 'delete' }, systemClock.now());
    say(`deleted ${oldest.uid}`);
  }
}

async function accept(number: number): Promise<void> {
  const writer = await spool.create(Buffer.from('Return-Path: <a@b.example>\r\n'), Buffer.from('Received: x\r\n'));
  await writer.write(Buffer.from(`Subject: ${number}\r\n\r\n${'A line of text.\r\n'.repeat(20)}`));
  const message = await writer.finish();
  const uid = `n${number}`;
  const to = ['a@one.example', 'b@two.example'];
  const prepared = await queue.prepare(newEntry(systemClock.now(), { uid, to, subject: String(number) }), message);
  await prepared.commit();
  prepared.release();
  say(`accepted ${uid}`);
  await message.release();
}
