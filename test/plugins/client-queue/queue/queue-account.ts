import assert from 'node:assert/strict';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { Entry } from '../../../../core/contracts/queue-entry.js';
import { systemClock } from '../../../../core/clock.js';
import { openSpool, type Durability } from '../../../../core/spool/file-spool.js';
import { openRelayQueue } from '../../../../plugins/client-queue/queue/open-relay-queue.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { bodiesOf } from './queue-fixture.js';

/** What the killed process had said. */
export class Said {
  readonly accepted = new Set<string>();
  readonly deleted = new Set<string>();
  /** `uid index` of recipients that were written down as delivered. */
  readonly delivered = new Set<string>();
  /** Those of which a server was told at least. */
  readonly sent = new Set<string>();
  readonly deleting = new Set<string>();

  hear(line: string): void {
    const [what, uid = '', ...rest] = line.split(' ');
    const indexes = (rest.at(-1) ?? '').split(',').map((index) => `${uid} ${index}`);
    if (what === 'accepted') this.accepted.add(uid);
    if (what === 'deleting') this.deleting.add(uid);
    if (what === 'deleted') this.deleted.add(uid);
    if (what === 'sent') for (const one of indexes) this.sent.add(one);
    if (what === 'settled' && rest[0] === 'delivered') for (const one of indexes) this.delivered.add(one);
  }
}

const final = new Set(['delivered', 'bounced', 'expired', 'deleted']);

/**
 * Opens the queue as the next start would, and holds it to what was said: accepted = open + delivered + bounced + deleted, what
 * was written down is written down, and no message of an open entry is missing.
 */
export async function accountFor(data: string, durability: Durability, said: Said, entries: number): Promise<void> {
  const { log, sentences } = rememberingLog();
  const spool = await openSpool(join(data, 'spool'), { log, reserveBytes: 0, durability });
  const folder = join(data, 'queue');
  const bounds = { keepFinishedMs: 1e9, maxEntries: 1e6, segmentBytes: 64 * 1024, journalBytes: 5000 };
  const queue = await openRelayQueue({ folder, clock: systemClock, log, ...bounds });
  await spool.recover();
  await queue.housekeep(systemClock.now());
  const wanted = new Set<string>();
  for (let number = 0; number < entries; number++) {
    const uid = `n${number}`;
    const entry = await queue.find(uid);
    if (entry === undefined) assert.ok(!said.accepted.has(uid), `${uid} was accepted and is lost`);
    else {
      hold(entry, said);
      if (entry.hasMessage) wanted.add(uid);
      if (entry.hasMessage) assert.match(await text(await queue.open(uid)), new RegExp(`Subject: ${number}\r\n`));
    }
  }
  // What had come and was not accepted yet is set aside.
  for (const { name, uid, reason } of await queue.quarantine.list()) {
    assert.match(reason, /ended before it accepted/, sentences.join('\n'));
    assert.ok(uid !== undefined && !said.accepted.has(uid), name);
  }
  await queue.close();
  await spool.close();
  assert.deepEqual(new Set(await bodiesOf(folder)), wanted, 'no message lies about');
}

function hold({ uid, state, recipients }: Entry, said: Said): void {
  if (said.deleted.has(uid)) assert.ok(final.has(state), `${uid} was deleted and is ${state}`);
  recipients.forEach((recipient, index) => {
    const name = `${uid} ${index}`;
    if (said.delivered.has(name)) assert.equal(recipient.state, 'delivered', `${name} would be sent again`);
    if (recipient.state === 'delivered') assert.ok(said.sent.has(name), `${name} was never sent`);
    if (recipient.state === 'deleted') assert.ok(said.deleting.has(uid), `${name} was deleted by nobody`);
  });
}
