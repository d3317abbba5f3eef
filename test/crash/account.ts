import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { openSpool, type Durability } from '../../core/spool/file-spool.js';
import { placedMessageFinder } from '../../plugins/store/delivery/message-finder.js';
import { rememberingLog } from '../core/spool/remembering-log.js';
import { inbox, prologue } from '../plugins/store/delivery-fixture.js';
import { numberedMessage } from '../plugins/store/numbered-message.js';

export const users = ['ann@example.org', 'bob@example.org'] as const;

/** What a start does before mail comes in. */
export async function recover(data: string, durability: Durability): Promise<void> {
  const { log, sentences } = rememberingLog();
  const spool = await openSpool(join(data, 'spool'), { log, durability, segmentBytes: 1024 * 1024 });
  await spool.recover(() => placedMessageFinder(join(data, 'mail')));
  assert.equal(spool.report().status, 'up', sentences.join('; '));
  await spool.close();
  assert.deepEqual(await readdir(join(data, 'spool')), [], 'the start empties the spool');
}

/**
 * Holds what is in the mailboxes to what was printed: acknowledged messages once, those that were taken back nowhere,
 * others at most once, in both mailboxes or in none, and every byte right.
 * @param printed numbers; negative ones were taken back
 */
export async function account(data: string, word: string, printed: readonly number[], most: number): Promise<void> {
  const [ann, bob] = await Promise.all(users.map((user) => copiesIn(data, user)));
  assert.ok(ann !== undefined && bob !== undefined);
  const known = new Set(printed.map(Math.abs));
  for (let number = 1; number <= most; number += 1) {
    const text = Buffer.concat([prologue.returnPath, prologue.trace, numberedMessage(word, number)]).toString();
    const copies: readonly number[] = [ann.get(text) ?? 0, bob.get(text) ?? 0];
    if (known.has(number)) {
      const expected = printed.includes(number) ? 1 : 0;
      assert.deepEqual(
        copies,
        [expected, expected],
        `message ${number}, which was ${expected === 1 ? '' : 'not '}acknowledged`,
      );
    } else assert.ok(Math.max(...copies) <= 1, `message ${number} is there twice`);
    ann.delete(text);
    bob.delete(text);
  }
  assert.deepEqual([...ann.keys(), ...bob.keys()], [], 'nothing is there that was not sent, or only in part');
}

async function copiesIn(data: string, user: string): Promise<Map<string, number>> {
  const copies = new Map<string, number>();
  const found = await inbox({ mail: join(data, 'mail') }, user).catch(() => new Map<string, Buffer>());
  for (const [name, content] of found) {
    assert.ok(name.includes(`,S=${content.length},W=${content.length}`), name);
    copies.set(content.toString(), (copies.get(content.toString()) ?? 0) + 1);
  }
  return copies;
}
