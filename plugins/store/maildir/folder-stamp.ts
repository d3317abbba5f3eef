import { type BigIntStats, lstatSync } from 'node:fs';
import { join } from 'node:path';
import { isAbsent } from '../../../core/disk/confinement.js';

/** Identity and times of a directory, to detect changes. */
export interface Stamp {
  /** Empty for a missing directory. */
  readonly text: string;
  /** Milliseconds since 1970. */
  readonly changedAt: number;
}

export const maildirNames = ['new', 'cur'] as const;

/**
 * Directory times have a resolution of some milliseconds: two changes can have the same stamp. A stamp that is older
 * than this identifies one state.
 */
const settledMs = 100;

const absent: Stamp = { text: '', changedAt: 0 };

/** Includes the time of the last change (ctime), which cannot be set back. */
export function stampOf({ dev, ino, mtimeNs, ctimeNs }: BigIntStats): Stamp {
  const newest = mtimeNs > ctimeNs ? mtimeNs : ctimeNs;
  const text = [dev, ino, mtimeNs, ctimeNs].map((part) => part.toString(36)).join('-');
  return { text, changedAt: Number(newest / 1_000_000n) };
}

/** @param now milliseconds since 1970, before the stamp was read */
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

/** Of one directory; undefined when it changed a moment ago. */
export function directoryVersion(path: string, now: number): string | undefined {
  const stamp = stampAt(path);
  return isSettled(stamp, now) ? stamp.text : undefined;
}

/** Changes whenever a message arrives, leaves or gets a flag; undefined when the folder changed a moment ago. */
export function folderVersion(folder: string, now: number): string | undefined {
  const stamps = maildirNames.map((name) => stampAt(join(folder, name)));
  if (!stamps.every((stamp) => isSettled(stamp, now))) return undefined;
  return stamps.map(({ text }) => text.split('-').slice(1).join('-')).join('.');
}
