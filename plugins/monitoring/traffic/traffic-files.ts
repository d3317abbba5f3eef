import { readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { writeFileAtomic } from '../../../core/disk/atomic.js';
import type { Log } from '../../../core/log/log.js';

/**
 * Messages received; recipients sent to other servers, deferred at their first attempt, and returned; refusals; and the
 * server's own notices, which count as nothing else.
 */
export const trafficKinds = ['received', 'sent', 'deferred', 'bounced', 'rejected', 'notices'] as const;
export type TrafficKind = (typeof trafficKinds)[number];

/** Most frequent names: domains mail was sent to, reverse-paths of received messages, replies of refusals. */
export const topKinds = ['destinations', 'senders', 'rejections'] as const;
export type TopKind = (typeof topKinds)[number];

export type Ranking = readonly (readonly [name: string, count: number])[];

/** What happened within one hour (UTC). */
export interface HourRecord {
  readonly counts: Readonly<Record<TrafficKind, number>>;
  readonly top: Readonly<Record<TopKind, Ranking>>;
}

export const hourMs = 3_600_000;
export const dayMs = 86_400_000;
/** Names of a kind that are kept for an hour. */
export const maxTop = 20;
export const maxNameLength = 100;

const Count = z.int().min(0);
const Ranking = z.array(z.tuple([z.string().max(maxNameLength), Count])).max(maxTop);
/** Strict: a new kind needs a default, or older files are set aside as damaged. */
const Hour = z.strictObject({
  counts: z.strictObject({
    received: Count,
    sent: Count,
    deferred: Count,
    bounced: Count,
    rejected: Count,
    notices: Count,
  } satisfies Record<TrafficKind, typeof Count>),
  top: z.strictObject({ destinations: Ranking, senders: Ranking, rejections: Ranking }),
});
const Day = z.strictObject({
  format: z.literal(1),
  hours: z.record(z.string().regex(/^(?:\d|1\d|2[0-3])$/), Hour),
});

/** Days on disk. The newest stay by name, so that a wrong clock removes nothing but the oldest. */
export const keptDays = 400;
/** Days in memory: two ranges of thirty days. */
const readDays = 61;

const fileName = /^\d{4}-\d{2}-\d{2}\.json$/;

/** Whether the entry of the folder is a file of ours. */
export const isTrafficFile = ({ name }: { readonly name: string }): boolean =>
  fileName.test(name.replace(/\.damaged$/, '')) || /^\.\d{4}-\d{2}-\d{2}\.json\..*\.tmp$/.test(name);

/** Hours of mail in one JSON file for each day (UTC), in a folder. */
export class TrafficFiles {
  readonly #folder: string;
  readonly #log: Log;
  /** By day number since 1970, ascending. */
  readonly #days = new Map<number, Map<number, HourRecord>>();
  readonly #changed = new Set<number>();
  #failed = false;

  private constructor(folder: string, log: Log) {
    this.#folder = folder;
    this.#log = log;
  }

  /** Reads the newest days. A file that cannot be read as one is set aside, with a warning. */
  static async open(folder: string, log: Log): Promise<TrafficFiles> {
    const files = new TrafficFiles(folder, log);
    const names = (await readdir(folder)).filter((name) => fileName.test(name)).toSorted();
    for (const name of names.slice(-readDays)) await files.#read(name);
    return files;
  }

  /** Records by the number of their hour since 1970, of `from` to before `to` (milliseconds, whole hours). */
  hours(from: number, to: number): ReadonlyMap<number, HourRecord> {
    const found = new Map<number, HourRecord>();
    for (let day = Math.floor(from / dayMs); day * dayMs < to; day += 1) {
      for (const [hour, record] of this.#days.get(day) ?? []) {
        const number = day * 24 + hour;
        if (number * hourMs >= from && number * hourMs < to) found.set(number, record);
      }
    }
    return found;
  }

  set(hour: number, record: HourRecord): void {
    const day = Math.floor(hour / 24);
    const hours = this.#days.get(day) ?? new Map<number, HourRecord>();
    hours.set(hour % 24, record);
    this.#days.set(day, hours);
    this.#changed.add(day);
    if (this.#days.size > readDays) this.#forgetOldest();
  }

  /** Writes the changed days. Never rejects; a day that cannot be written stays changed. */
  async save(): Promise<void> {
    if (this.#changed.size === 0) return;
    try {
      for (const day of this.#changed) {
        this.#changed.delete(day);
        await this.#write(day);
      }
      this.#failed = false;
    } catch (error) {
      if (!this.#failed) this.#log.warn({ err: error }, 'counts of mail cannot be written');
      this.#failed = true;
    }
  }

  async #write(day: number): Promise<void> {
    const hours = this.#days.get(day) ?? new Map<number, HourRecord>();
    const path = join(this.#folder, nameOf(day));
    try {
      await writeFileAtomic(path, JSON.stringify({ format: 1, hours: Object.fromEntries(hours) }));
    } catch (error) {
      this.#changed.add(day);
      throw error;
    }
    await this.#removeOld();
  }

  async #removeOld(): Promise<void> {
    const names = (await readdir(this.#folder)).filter((name) => fileName.test(name)).toSorted();
    for (const name of names.slice(0, -keptDays)) await rm(join(this.#folder, name), { force: true });
  }

  async #read(name: string): Promise<void> {
    const path = join(this.#folder, name);
    try {
      const { hours } = Day.parse(JSON.parse(await readFile(path, 'utf8')));
      const day = Date.parse(name.slice(0, 10)) / dayMs;
      if (nameOf(day) !== name) throw new Error(`${name.slice(0, 10)} is no day`);
      this.#days.set(day, new Map(Object.entries(hours).map(([hour, record]) => [Number(hour), record])));
    } catch (error) {
      this.#log.warn({ file: name, err: error }, 'a file of counts is damaged, and is set aside');
      await rename(path, `${path}.damaged`).catch(() => undefined);
    }
  }

  #forgetOldest(): void {
    const oldest = Math.min(...this.#days.keys());
    if (!this.#changed.has(oldest)) this.#days.delete(oldest);
  }
}

const nameOf = (day: number): string =>
  Number.isInteger(day) ? `${new Date(day * dayMs).toISOString().slice(0, 10)}.json` : '';
