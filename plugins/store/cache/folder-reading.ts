import { join } from 'node:path';
import { isSettled, maildirNames, type Stamp, stampAt } from '../maildir/folder-stamp.js';
import { ConfinedDirectory } from './confined-directory.js';
import { type FolderRows, silentRow } from './folder-rows.js';
import { readMessageName } from '../maildir/message-name.js';
import { type FileFacts, RowBuilder } from './row-builder.js';
import { isSame, mergeRows, noRows, type Reread, widened } from './row-merge.js';
import type { TimeSlice } from '../../../core/concurrency.js';

/** The names of a folder, with the directory states that they are complete for. */
export interface FolderNames {
  readonly rows: FolderRows;
  /** Stamp of each directory when it was read; null when a later change may have the same stamp. */
  readonly stamps: Readonly<Record<'new' | 'cur', string | null>>;
}

export const nothingRead: FolderNames = { rows: noRows, stamps: { new: null, cur: null } };

export interface ReadingDeps {
  /** Resolved folder of the mailboxes. */
  readonly root: string;
  /** Absolute. */
  readonly folder: string;
  /** Milliseconds since 1970, not later than now. */
  readonly now: number;
  readonly timeSlice: TimeSlice;
}

/**
 * A file that is renamed during a read can be missed: reads are repeated this often until nothing changes meanwhile.
 */
const looks = 4;

/**
 * The names in `new` and `cur`. A directory with an unchanged stamp is not read again; when `cur` changed a moment ago,
 * two reads must agree.
 * @param force read both, whatever their stamps are
 * @returns undefined when there is no such folder
 */
export async function readNames(
  known: FolderNames,
  deps: ReadingDeps,
  force: boolean,
): Promise<FolderNames | undefined> {
  const builders: RowBuilder[] = [];
  const names = await readUntilQuiet(force ? { ...known, stamps: nothingRead.stamps } : known, deps, builders);
  for (const builder of builders) builder.release();
  return names;
}

/** @param builders receives the builders whose rows are in use */
async function readUntilQuiet(
  known: FolderNames,
  deps: ReadingDeps,
  builders: RowBuilder[],
): Promise<FolderNames | undefined> {
  let names = known;
  let before: Directories | undefined;
  for (let look = 1; ; look++) {
    const { changed, stamps } = changedSince(names, deps);
    if (!changed.new && !changed.cur) return names;
    const reread = widened(names.rows, changed);
    // A read is compared only with the one before it.
    if (builders.length === 2) builders.shift()?.release();
    const found = await readDirectories(deps, reread, names.rows, builders);
    if (found === undefined) return undefined;
    const agrees = before !== undefined && isAlike(before, found);
    const rows = agrees ? names.rows : mergeRows(names.rows, found.rows, reread);
    const seen = { ...stamps, ...found.stamps };
    const [isNewQuiet, isCurQuiet] = maildirNames.map(
      (name) => stampAt(join(deps.folder, name)).text === seen[name].text,
    );
    const last = names;
    names = { rows, stamps: settledOf(seen, deps.now) };
    // No file of `new` is renamed but to `cur`: one read has all that were there, also while mail comes in.
    if (!reread.cur && isCurQuiet === true && names.stamps.cur !== null) return names;
    const isQuiet = isNewQuiet === true && isCurQuiet === true;
    if (isQuiet && (agrees || maildirNames.every((name) => names.stamps[name] !== null))) return names;
    // Messages of either of the last two reads: one too many is better than one too few.
    if (look === looks) return { rows: mergeRows(rows, last.rows, neither), stamps: nothingRead.stamps };
    before = found;
    await deps.timeSlice.yieldIfDue();
  }
}

const neither: Reread = { new: false, cur: false };

function isAlike(a: Directories, b: Directories): boolean {
  return a.reread.new === b.reread.new && a.reread.cur === b.reread.cur && isSame(a.rows, b.rows);
}

type Stamps = Record<'new' | 'cur', Stamp>;

function changedSince({ stamps }: FolderNames, { folder }: ReadingDeps): { changed: Reread; stamps: Stamps } {
  const [fresh, current] = maildirNames.map((name) => stampAt(join(folder, name)));
  const now: Stamps = { new: fresh ?? nowhere, cur: current ?? nowhere };
  // When both are missing, the folder may be gone.
  if (now.new.text === '' && now.cur.text === '') return { changed: { new: true, cur: true }, stamps: now };
  return { changed: { new: now.new.text !== stamps.new, cur: now.cur.text !== stamps.cur }, stamps: now };
}

const nowhere: Stamp = { text: '', changedAt: 0 };

function settledOf(stamps: Stamps, now: number): FolderNames['stamps'] {
  const settled = (stamp: Stamp) => (isSettled(stamp, now) ? stamp.text : null);
  return { new: settled(stamps.new), cur: settled(stamps.cur) };
}

interface Directories {
  readonly reread: Reread;
  readonly rows: FolderRows;
  /** Stamps from before the read, of the directories that were read. */
  readonly stamps: Partial<Stamps>;
}

/** `new` before `cur`: a message that is moved meanwhile is seen twice, not never. */
async function readDirectories(
  deps: ReadingDeps,
  reread: Reread,
  known: FolderRows,
  builders: RowBuilder[],
): Promise<Directories | undefined> {
  const stamps: Partial<Stamps> = {};
  let directory: ConfinedDirectory | undefined;
  let opened = 0;
  const ask = (name: string) => knownFacts(known, name) ?? directory?.facts(name);
  const builder = new RowBuilder(ask, reread.cur ? known.count : 0);
  builders.push(builder);
  for (const name of maildirNames) {
    if (!reread[name]) continue;
    const path = join(deps.folder, name);
    directory = ConfinedDirectory.open(deps.root, path);
    stamps[name] = directory?.stamp() ?? stampAt(path);
    if (directory === undefined) continue;
    opened++;
    try {
      for (const names of directory.files()) {
        builder.add(names, name === 'cur');
        await deps.timeSlice.yieldIfDue();
      }
    } finally {
      directory.close();
    }
  }
  if (opened === 0 && !isFolder(deps)) return undefined;
  return { reread, rows: builder.finish(), stamps };
}

/** A file never changes under its unique name, so it is only asked once. */
function knownFacts(known: FolderRows, name: string): FileFacts | undefined {
  const row = known.count === 0 ? -1 : silentRow(known, readMessageName(name).id);
  return row < 0 ? undefined : { receivedAt: known.receivedAt[row] ?? 0, size: known.size[row] ?? 0 };
}

function isFolder({ root, folder }: ReadingDeps): boolean {
  const directory = ConfinedDirectory.open(root, folder);
  directory?.close();
  return directory !== undefined;
}
