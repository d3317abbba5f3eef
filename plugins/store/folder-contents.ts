import { lstat } from 'node:fs/promises';
import { join } from 'node:path';

import type { Clock } from '../../core/clock.js';
import { type Confinement, isAbsent } from '../../core/disk/confinement.js';
import { mapBounded } from './concurrency.js';
import { readMessageName } from './message-name.js';
import { pacedMap, pacedSort } from './pace.js';

/** A message as the names in a folder show it, without opening it. */
export interface MessageEntry {
  readonly id: string;
  /** Below the folder: `new/…` or `cur/…`. Changes with every flag. */
  readonly file: string;
  readonly flags: string;
  /** Bytes; undefined when only the file itself knows. */
  readonly size: number | undefined;
  /** Milliseconds since 1970, with fractions. */
  readonly receivedAt: number;
}

/** What a folder held at one moment. */
export interface FolderContents {
  /** Newest first: by received time, then by id. */
  readonly entries: readonly MessageEntry[];
  readonly byId: ReadonlyMap<string, MessageEntry>;
  readonly unread: number;
  /** Changes whenever a message comes, goes or gets a flag; undefined when that was a moment ago and may be still going on. */
  readonly version: string | undefined;
}

/** Order of lists, newest first. Ids are compared as code units: any order will do, as long as it is one. */
export function compareNewestFirst(a: OrderKey, b: OrderKey): number {
  if (a.receivedAt !== b.receivedAt) return b.receivedAt - a.receivedAt;
  return a.id === b.id ? 0 : a.id < b.id ? 1 : -1;
}

export interface OrderKey {
  readonly receivedAt: number;
  readonly id: string;
}

/** Kernels stamp directories by a clock that ticks every few milliseconds: a change may hide behind a fresh stamp. */
const settledMs = 100;
const attempts = 3;

/**
 * Reads the names in `new` and `cur`. A file that is renamed meanwhile can be missed or seen twice by readdir, so it is
 * repeated until nothing changed, and after some attempts all that was seen is taken together.
 * @param folder absolute path
 * @returns undefined when there is no such folder
 */
export async function readFolderContents(
  confinement: Confinement,
  folder: string,
  clock: Clock,
): Promise<FolderContents | undefined> {
  const seen = new Map<string, MessageEntry>();
  for (let attempt = 0; attempt < attempts; attempt++) {
    const before = await stampOf(folder);
    const entries = await readOnce(confinement, folder);
    if (entries === undefined) return undefined;
    const after = await stampOf(folder);
    if (before.text === after.text) return contentsOf(entries, versionOf(after, clock));
    for (const entry of entries) seen.set(entry.id, entry);
  }
  return contentsOf([...seen.values()], undefined);
}

/** The version that a reading would have now; undefined when it cannot be trusted. Costs two lstat. */
export async function currentVersion(folder: string, clock: Clock): Promise<string | undefined> {
  return versionOf(await stampOf(folder), clock);
}

interface Stamp {
  readonly text: string;
  readonly newestMs: number;
}

async function stampOf(folder: string): Promise<Stamp> {
  const [fresh, current] = await Promise.all([modified(join(folder, 'new')), modified(join(folder, 'cur'))]);
  const newest = fresh > current ? fresh : current;
  return { text: `${fresh.toString(36)}-${current.toString(36)}`, newestMs: Number(newest / 1_000_000n) };
}

async function modified(path: string): Promise<bigint> {
  try {
    return (await lstat(path, { bigint: true })).mtimeNs;
  } catch (error) {
    if (isAbsent(error)) return 0n;
    throw error;
  }
}

function versionOf(stamp: Stamp, clock: Clock): string | undefined {
  return clock.now() - stamp.newestMs > settledMs ? stamp.text : undefined;
}

async function readOnce(confinement: Confinement, folder: string): Promise<readonly MessageEntry[] | undefined> {
  // new before cur: a message that a reader moves meanwhile is seen twice rather than never.
  const fresh = await namesIn(confinement, folder, 'new');
  const current = await namesIn(confinement, folder, 'cur');
  if (fresh === undefined && current === undefined) {
    return (await confinement.hasFolder(folder)) ? [] : undefined;
  }
  return timed(folder, [...(fresh ?? []), ...(current ?? [])]);
}

type Named = Omit<MessageEntry, 'receivedAt'> & { readonly receivedAt: number | undefined };

async function namesIn(
  confinement: Confinement,
  folder: string,
  directory: 'new' | 'cur',
): Promise<readonly Named[] | undefined> {
  const found = await confinement.list(join(folder, directory));
  if (found === undefined) return undefined;
  return pacedMap(found, (entry) => {
    if (!entry.isFile() || entry.name.startsWith('.')) return undefined;
    const { id, flags, size, receivedAt } = readMessageName(entry.name);
    return { id, flags, size, receivedAt, file: `${directory}/${entry.name}` };
  });
}

/** Names that do not begin with a time are asked for the file's own. */
async function timed(folder: string, names: readonly Named[]): Promise<readonly MessageEntry[]> {
  const unknown: Named[] = [];
  const known = await pacedMap(names, (name) => {
    const { receivedAt } = name;
    if (receivedAt === undefined) unknown.push(name);
    return receivedAt === undefined ? undefined : (name as MessageEntry);
  });
  const asked = await mapBounded(unknown, 16, async (name) => {
    const stat = await lstat(join(folder, name.file)).catch(() => undefined);
    return stat === undefined ? undefined : { ...name, receivedAt: stat.mtimeMs };
  });
  return known.concat(asked.filter((entry) => entry !== undefined));
}

/** @param entries of an id that occurs twice the last one counts */
async function contentsOf(entries: readonly MessageEntry[], version: string | undefined): Promise<FolderContents> {
  const byId = new Map<string, MessageEntry>();
  let unread = 0;
  await pacedMap(entries, (entry) => void byId.set(entry.id, entry));
  const sorted = await pacedSort([...byId.values()], compareNewestFirst);
  await pacedMap(sorted, (entry) => void (unread += isUnread(entry) ? 1 : 0));
  return { entries: sorted, byId, unread, version };
}

export function isUnread(entry: { readonly flags: string }): boolean {
  return !entry.flags.includes('S');
}
