import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openSpool } from '../../../core/spool/file-spool.js';
import { placedMessageFinder } from '../../../plugins/store/delivery/message-finder.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { inbox, prologue } from './delivery-fixture.js';
import { numberedMessage } from './numbered-message.js';

const script = fileURLToPath(new URL('delivering-process.js', import.meta.url));

for (const durability of ['file', 'log'] as const) {
  test(`whatever was acknowledged before a kill is there after it, byte for byte, for each recipient (${durability})`, async (t) => {
    const data = await temporaryFolder(t);
    for (const word of ['first', 'second', 'third', 'fourth']) {
      const acknowledged = await deliverUntilKilled(data, word, durability, randomInt(1, 400));
      const spool = await openSpool(join(data, 'spool'), { ...rememberingLog(), durability });
      await spool.recover(() => placedMessageFinder(join(data, 'mail')));
      await spool.close();
      assert.deepEqual(await readdir(join(data, 'spool')), [], 'the next start empties the spool');
      for (const user of ['ann@example.org', 'bob@example.org']) await assertAllThere(data, user, word, acknowledged);
    }
  });
}

async function assertAllThere(
  data: string,
  user: string,
  word: string,
  acknowledged: readonly number[],
): Promise<void> {
  const found = [...(await inbox({ mail: join(data, 'mail') }, user))];
  for (const [name, content] of found) assert.ok(name.includes(`,S=${content.length},W=${content.length}`), name);
  const copies = new Map<string, number>();
  for (const [, content] of found) copies.set(content.toString(), (copies.get(content.toString()) ?? 0) + 1);
  for (const number of acknowledged) {
    const sent = Buffer.concat([
      prologue.returnPath,
      prologue.trace,
      numberedMessage(word, Math.abs(number)),
    ]).toString();
    assert.equal(copies.get(sent) ?? 0, number > 0 ? 1 : 0, `${word} ${number} of ${user}`);
  }
}

/** The numbers that a delivering process has acknowledged when it is killed, after at least so many of them. */
async function deliverUntilKilled(
  data: string,
  word: string,
  durability: string,
  enough: number,
): Promise<readonly number[]> {
  const child = spawn(process.execPath, [script, data, word, durability], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  const acknowledged: number[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    acknowledged.push(Number(line));
    if (acknowledged.length === enough) child.kill('SIGKILL');
  }
  assert.deepEqual(await exited, [null, 'SIGKILL']);
  return acknowledged;
}
