import { type BigIntStats, lstatSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { isAbsent } from '../../../core/disk/confinement.js';

/** The state of a directory of names, as the file system stamps it. */
export interface Stamp {
  /** The directory itself and its times; empty for one that is not there. */
  readonly text: string;
  /** Milliseconds since 1970. */
  readonly changedAt: number;
}

export const maildirNames = ['new', 'cur'] as const;

/**
 * Directories are stamped by a clock that ticks every few milliseconds: a change may hide behind a fresh stamp. One that is
 * older than this names one state only.
 */
export const settledMs = 100;

const absent: Stamp = { text: '', changedAt: 0 };

/** The time of the last change (ctime) counts too, for it cannot be set back. */
export function stampOf({ dev, ino, mtimeNs, ctimeNs }: BigIntStats): Stamp {
  const newest = mtimeNs > ctimeNs ? mtimeNs : ctimeNs;
  const text = [dev, ino, mtimeNs, ctimeNs].map((part) => part.toString(36)).join('-');
  return { text, changedAt: Number(newest / 1_000_000n) };
}

/** @param now milliseconds since 1970, before the stamp was looked at */
export function isSettled(stamp: Stamp, now: number): boolean {
  return now - stamp.changedAt > settledMs;
}

export function stampAt(path: string): Stamp {
  try {
    return stampOf(lstatSync(path, { bigint: true }));
  } catch (error) {
    if (isAbsent(error)) return absent;
    throw error;
  }
}

/** Changes whenever a message comes, goes or gets a flag; undefined when that was a moment ago and may be still going on. */
export async function folderVersion(folder: string, now: number): Promise<string | undefined> {
  const stamps = await Promise.all(maildirNames.map((name) => stampLater(join(folder, name))));
  if (!stamps.every((stamp) => isSettled(stamp, now))) return undefined;
  return stamps.map(({ text }) => text.split('-').slice(1).join('-')).join('.');
}

async function stampLater(path: string): Promise<Stamp> {
  try {
    return stampOf(await lstat(path, { bigint: true }));
  } catch (error) {
    if (isAbsent(error)) return absent;
    throw error;
  }
}
