import { execFile } from 'node:child_process';
import { chownSync, mkdtempSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';
import { isRoot, mailAccount } from '../test/support/account.js';
import { findPeer } from '../test/support/peers.js';
import { ImapServer, MailboxServer } from './mailbox-peers.js';
import { fillTree, makeTree, type Tree } from './mailbox-tree.js';
import { median, printTable } from './table.js';

/** `--mailboxes N`, `--messages N` of each, `--rounds N`: searches of which the median counts. */
const options = {
  mailboxes: { type: 'string', default: '50' },
  messages: { type: 'string', default: '2000' },
  rounds: { type: 'string', default: '7' },
} as const;

interface Answer {
  readonly mail: { readonly total: number; readonly mailboxes: number; readonly searched: number };
}

type Search = (words: string) => Promise<number>;

/** Kinds of searches: other words in each round. */
const kinds: readonly (readonly [title: string, words: (round: number) => string])[] = [
  ['few of them fit', (round) => `number ${round % 10}77`],
  ['one of ten fits', (round) => ['offer', 'invoice', 'meeting', 'report', 'holiday', 'parcel'][round % 6] ?? ''],
  ['none fits', (round) => `xyzzy${round}`],
];

/**
 * Milliseconds for a search of subject words in all mailboxes: as JSON over HTTP, beside it Dovecot's SEARCH over IMAP without
 * a full-text index, in connections that stay open, and `grep -r` in the same files.
 */
export async function search(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...args], options });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const account = mailAccount();
  if (isRoot()) chownSync(folder, account.uid, account.gid);
  try {
    const users = Array.from({ length: Number(values.mailboxes) }, (_, n) => `user${n}`);
    const trees = users.map((user) => makeTree(join(folder, 'mail'), account, 'example.org', user));
    for (const tree of trees) fillTree(tree, Number(values.messages), account);
    await measure(folder, trees, users, Number(values.rounds));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function measure(folder: string, trees: readonly Tree[], users: readonly string[], rounds: number) {
  const [tree] = trees;
  if (tree === undefined) return;
  const postern = new MailboxServer(join(folder, 'postern'), tree);
  const dovecot = findPeer('dovecot') === undefined ? undefined : new ImapServer(tree, mailAccount());
  const rows: string[][] = [];
  const add = (...cells: readonly string[]): void => {
    rows.push([...cells]);
    process.stderr.write(`${cells.join('  ')}\n`);
  };
  try {
    await postern.start();
    await postern.longestBlock();
    add('nothing read: the first answer', ...(await firstAnswer(postern)));
    const began = performance.now();
    while ((await asked(postern, 'picnic')).searched < users.length) await pause(500);
    add('nothing read: all is searched', shown(performance.now() - began), '', '', shown(await postern.longestBlock()));
    await postern.stop();
    await postern.start();
    await postern.longestBlock();
    add('after a restart: the first answer', ...(await firstAnswer(postern)));
    await dovecot?.start();
    const byImap = await dovecot?.openAll(users.map((user) => `${user}@example.org`));
    for (const [title, words] of kinds) {
      const ours = await timed(async (q) => (await asked(postern, q, 10)).total, words, rounds);
      const blocked = await postern.longestBlock();
      const theirs = byImap === undefined ? undefined : await timed(byImap, words, rounds);
      const greps = await timed((q) => grep(tree.root, q), words, Math.min(rounds, 3));
      // Ours also looks at senders, recipients and Message-IDs.
      if (theirs !== undefined && theirs.count > ours.count) throw new Error(`${title}: too few were found`);
      add(`warm: ${title}`, shown(ours.ms), shown(theirs?.ms ?? Number.NaN), shown(greps.ms), shown(blocked));
    }
  } finally {
    await postern.stop();
    await dovecot?.stop();
  }
  const load = loadavg()[0]?.toFixed(1);
  process.stdout.write(
    `\n${users.length} mailboxes; milliseconds, medians of ${rounds}; load of the machine ${load}\n`,
  );
  printTable(['', 'postern', 'dovecot', 'grep', 'loop blocked'], rows);
}

async function firstAnswer(postern: MailboxServer): Promise<readonly string[]> {
  const began = performance.now();
  const { searched, mailboxes } = await asked(postern, 'picnic');
  const ms = performance.now() - began;
  return [`${shown(ms)} (${searched} of ${mailboxes})`, '', '', shown(await postern.longestBlock())];
}

async function asked(postern: MailboxServer, q: string, wait?: number): Promise<Answer['mail']> {
  const seconds = wait === undefined ? '' : `&wait=${wait}`;
  const answer = JSON.parse(
    await postern.get(`/search?group=mail&limit=20${seconds}&q=${encodeURIComponent(q)}`),
  ) as Answer;
  return answer.mail;
}

async function timed(ask: Search, words: (round: number) => string, rounds: number) {
  const times: number[] = [];
  let count = 0;
  for (let round = 0; round < rounds; round += 1) {
    const began = performance.now();
    count = await ask(words(round));
    times.push(performance.now() - began);
  }
  return { ms: median(times), count };
}

/** Files that have the words in this order. */
async function grep(root: string, words: string): Promise<number> {
  const run = promisify(execFile)('grep', ['-rliF', words, root], { maxBuffer: 2 ** 26 });
  const { stdout } = await run.catch((error: { stdout?: string }) => ({ stdout: error.stdout ?? '' }));
  return stdout.split('\n').length - 1;
}

const shown = (ms: number): string => (Number.isNaN(ms) ? '' : ms.toFixed(0));
