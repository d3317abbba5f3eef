import { randomInt } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Durability } from '../../core/spool/file-spool.js';
import { maildirMessages } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { Ledger } from './ledger.js';

const senders = 20;

export interface RandomKills {
  readonly sent: number;
  readonly acknowledged: number;
  readonly kept: number;
  /** Message-IDs that got a 250 and are not there. */
  readonly lost: readonly string[];
  /** Message-IDs that are there more than once. */
  readonly doubled: readonly string[];
}

/** Kills a server under load again and again, then counts by Message-ID what is in its mailbox after one more start. */
export async function killAtRandom(durability: Durability, rounds: number): Promise<RandomKills> {
  const folder = await mkdtemp(join(tmpdir(), 'postern-crash-'));
  const endings: (() => unknown)[] = [];
  const ending = { after: (end: () => unknown) => void endings.push(end) };
  const config = `{ durability: "${durability}", smtp: { listeners: [{ mode: "mx", port: 0 }] } }`;
  const ledger = new Ledger();
  try {
    for (let round = 0; round < rounds; round += 1) {
      const server = await ServerProcess.start(ending, { folder, config });
      const sending = Array.from({ length: senders }, () => ledger.sendUntilGone(server.smtpPort));
      await Promise.race([ledger.more(randomInt(1, 500)), Promise.all(sending)]);
      await pause(randomInt(0, 20));
      await server.kill('SIGKILL');
      await Promise.all(sending);
    }
    const server = await ServerProcess.start(ending, { folder, config });
    await server.kill('SIGTERM');
    const kept = await maildirMessages(join(folder, 'data', 'mail', 'localhost', 'postmaster'));
    const copies = ledger.copies(kept);
    return {
      sent: ledger.sent.size,
      acknowledged: ledger.acknowledged.size,
      kept: kept.length,
      lost: [...ledger.acknowledged].filter((id) => !copies.has(id)),
      doubled: [...copies].filter(([, count]) => count > 1).map(([id]) => id),
    };
  } finally {
    for (const end of endings.toReversed()) await end();
    await rm(folder, { recursive: true, force: true });
  }
}
