import { chownSync, mkdtempSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { isRoot, mailAccount } from '../test/support/account.js';
import { findPeer } from '../test/support/peers.js';
import { ImapServer, type Look, MailboxServer } from './mailbox-peers.js';
import { arrive, fillTree, forgetIndex, linkTree, makeTree } from './mailbox-tree.js';
import { median, printTable } from './table.js';

/** `--sizes N,…`: messages of the folders. `--rounds N`: looks of which the median counts. */
const options = {
  sizes: { type: 'string', default: '1000,10000,100000' },
  rounds: { type: 'string', default: '7' },
} as const;

/** Messages of another mailbox, that somebody has looked at before: who starts a server waits for it once. */
const seenBefore = 100;
/** So long a change counts as just made. */
const settledMs = 150;

/**
 * Milliseconds until somebody sees a mailbox: its totals, and sender, subject and date of the fifty newest messages. As JSON over
 * HTTP, and beside it from Dovecot by IMAP (STATUS, SELECT, FETCH ENVELOPE), each over a tree of the same messages.
 */
export async function mailbox(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...args], options });
  for (const size of values.sizes.split(',').map(Number)) {
    const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
    if (isRoot()) chownSync(folder, mailAccount().uid, mailAccount().gid);
    try {
      await measureSize(folder, size, Number(values.rounds));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
}

async function measureSize(folder: string, size: number, rounds: number): Promise<void> {
  const account = mailAccount();
  const [own, theirs] = [makeTree(join(folder, 'own'), account), makeTree(join(folder, 'theirs'), account)];
  fillTree(own, size, account);
  fillTree(makeTree(own.root, account, 'localhost', 'postmaster'), seenBefore, account);
  linkTree(own, theirs);
  const postern = new MailboxServer(join(folder, 'postern'), own);
  const dovecot = findPeer('dovecot') === undefined ? undefined : new ImapServer(theirs, account);
  const rows: string[][] = [];
  const add = async (title: string, ours: Row, other: Row | undefined): Promise<void> => {
    const [mine, peer] = [await measure(ours, rounds, postern), other && (await measure(other, rounds))];
    const cells = [mine.ms, peer?.ms ?? Number.NaN, mine.ms / (peer?.ms ?? Number.NaN), mine.blocked];
    rows.push([title, ...cells.map((cell) => (Number.isNaN(cell) ? '' : cell.toFixed(cell < 10 ? 2 : 0)))]);
    process.stderr.write(`${rows.at(-1)?.join('  ')}\n`);
  };
  try {
    await postern.start();
    await dovecot?.start();
    await add(
      'nothing cached',
      { before: () => restart(postern, () => postern.forget()), look: postern.look },
      dovecot && { before: () => restart(dovecot, () => forgetIndex(theirs)), look: dovecot.look },
    );
    // Everything has been read when a search can say so.
    while ((await postern.search('picnic')) < 0) await pause(100);
    await add(
      'cache on disk, after a restart',
      { before: () => restart(postern), look: postern.look },
      dovecot && { before: () => restart(dovecot), look: dovecot.look },
    );
    await add('warm', { look: postern.look }, dovecot && { look: dovecot.look });
    await add('warm, over the same connection', { look: postern.look }, dovecot && { look: dovecot.lookAgain });
    await add(
      'warm, one new message since',
      { before: () => arriving(() => arrive(own, account)), look: postern.look },
      dovecot && { before: () => arriving(() => arrive(theirs, account)), look: dovecot.look },
    );
    // Other words each time: pages that were asked for before are remembered.
    let asked = 0;
    const search = (words: (n: number) => string): Row => ({
      look: async () => void (await postern.search(words((asked += 1)))),
    });
    await add(
      'search, few of them fit',
      search((n) => `number ${n % 10}77`),
      undefined,
    );
    await add(
      'search, one of ten fits',
      search((n) => ['offer', 'invoice', 'meeting', 'report', 'holiday', 'parcel', 'garden'][n % 7] ?? ''),
      undefined,
    );
    await add(
      'search, none fits',
      search((n) => `xyzzy${n}`),
      undefined,
    );
  } finally {
    await postern.stop();
    await dovecot?.stop();
  }
  const load = loadavg()[0]?.toFixed(1);
  process.stdout.write(`\n${size} messages; milliseconds, medians of ${rounds}; load of the machine ${load}\n`);
  printTable(['', 'postern', 'dovecot', 'ratio', 'loop blocked'], rows);
}

interface Row {
  readonly before?: () => Promise<void>;
  readonly look: Look;
}

async function measure({ before, look }: Row, rounds: number, postern?: MailboxServer) {
  const times: number[] = [];
  const blocks: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    await before?.();
    await postern?.longestBlock();
    const began = performance.now();
    await look();
    times.push(performance.now() - began);
    blocks.push((await postern?.longestBlock()) ?? Number.NaN);
  }
  return { ms: median(times), blocked: Math.max(...blocks) };
}

interface Restartable {
  start(): Promise<void>;
  stop(): Promise<void>;
}

async function restart(server: Restartable, between: () => void = () => undefined): Promise<void> {
  await server.stop();
  between();
  await server.start();
}

/** What came before has settled; the message itself has not. */
async function arriving(arrive: () => void): Promise<void> {
  await pause(settledMs);
  arrive();
}
