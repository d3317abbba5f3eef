import { constants } from 'node:fs';
import { lstat, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { cacheSize } from '../../../core/disk/cache-size.js';
import type { Clock } from '../../../core/clock.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isMissing } from '../../../core/disk/fault.js';
import { type FileLayer, writeAll } from '../../../core/disk/file-layer.js';
import { uniqueId } from '../../../core/disk/id.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import { HeldRoom } from '../maildir/held-room.js';
import { KeyedMutex } from '../../../core/concurrency.js';

/** What a mailbox holds, in all its folders. */
export interface MailboxUsage {
  /** Bytes. */
  readonly size: number;
  readonly count: number;
}

/** Room that is set aside for what is on its way into a mailbox, until that is there or has failed. */
export interface Room {
  /** It came. Never rejects. */
  taken(size: number, count: number): Promise<void>;
  /** It did not come, or was noted already. */
  giveBack(): void;
}

export interface QuotaGround {
  readonly files: FileLayer;
  readonly clock: Clock;
  readonly log: Log;
  readonly pathOf: (mailbox: MailboxName) => string;
  /** Bytes; null for none. */
  readonly limitOf: (mailbox: MailboxName) => number | null | Promise<number | null>;
  /** Counts every message. */
  readonly count: (mailbox: MailboxName) => Promise<MailboxUsage>;
}

/** A longer file is summed up anew (Maildir++). */
const longestFile = 5120;
/** A mailbox that seems full is counted again when its file is older than that. */
const doubtMs = 15 * 60_000;
/** So long it is believed that a mailbox has no such file, for another program may begin to keep one. */
const absentMs = 60_000;

interface Known extends MailboxUsage {
  readonly limit: number;
  readonly changedAt: number;
}

/**
 * Quotas as Maildir++ has them: the file `maildirsize` of a mailbox holds the limit, and what came and went since it was
 * counted. Other programs that keep the file are kept right too. It is an estimate that is counted anew when in doubt.
 */
export class MailboxQuotas {
  readonly #ground: QuotaGround;
  readonly #counting = new Map<string, Promise<MailboxUsage>>();
  readonly #held: HeldRoom;
  readonly #turns = new KeyedMutex();
  readonly #absent = new LRUCache<string, true>({ ...cacheSize(10_000), ttl: absentMs });

  constructor(ground: QuotaGround) {
    this.#ground = ground;
    this.#held = new HeldRoom(ground.clock);
  }

  /** Rejects with the problem `mailbox-full` when so many bytes more would be too much. No promise for a mailbox without a quota. */
  admit(mailbox: MailboxName, bytes: number): Promise<void> | undefined {
    const limit = this.#ground.limitOf(mailbox);
    return limit === null ? undefined : this.#admit(mailbox, bytes, limit);
  }

  /** As `admit`, and nobody else is admitted to that room. The caller takes it or gives it back, whatever happens. */
  reserve(mailbox: MailboxName, bytes: number): Promise<Room> | undefined {
    const limit = this.#ground.limitOf(mailbox);
    return limit === null ? undefined : this.#reserve(mailbox, bytes, limit);
  }

  /** Notes what `place` puts into the mailbox, for which there must be so many bytes more. @throws Problem `mailbox-full` */
  async placing<T>(mailbox: MailboxName, bytes: number, came: MailboxUsage, place: () => Promise<T>): Promise<T> {
    const room = await this.reserve(mailbox, bytes);
    try {
      const placed = await place();
      await (room?.taken(came.size, came.count) ?? this.changed(mailbox, came.size, came.count));
      return placed;
    } finally {
      room?.giveBack();
    }
  }

  /** What is noted and what is held are looked at and changed together, so that nothing counts twice or not at all. */
  #reserve(mailbox: MailboxName, bytes: number, limit: number | Promise<number | null>): Promise<Room> {
    const path = this.#fileOf(mailbox);
    return this.#turns.run(path, async () => {
      if (bytes > 0) await this.#admit(mailbox, bytes, limit);
      const giveBack = this.#held.hold(path, Math.max(0, bytes));
      const taken = (size: number, count: number): Promise<void> =>
        this.#turns.run(path, async () => {
          await this.changed(mailbox, size, count);
          giveBack();
        });
      return { taken, giveBack };
    });
  }

  async #admit(mailbox: MailboxName, bytes: number, given: number | Promise<number | null>): Promise<void> {
    const limit = await given;
    if (limit === null) return;
    const known = await this.#known(mailbox, limit);
    const fits = ({ size }: MailboxUsage): boolean => size + this.#held.in(this.#fileOf(mailbox)) + bytes <= limit;
    if (known !== undefined && fits(known)) return;
    const isFresh = known !== undefined && this.#ground.clock.now() - known.changedAt < doubtMs;
    if (!isFresh && fits(await this.#recount(mailbox, limit))) return;
    throw problem('mailbox-full', 'There is no room left in this mailbox: its quota is used up.');
  }

  /** Notes what came (or went, negative). Never rejects: the change itself is done. */
  async changed(mailbox: MailboxName, bytes: number, count: number): Promise<void> {
    const path = this.#fileOf(mailbox);
    if ((bytes === 0 && count === 0) || this.#absent.has(path)) return;
    const { files, log } = this.#ground;
    try {
      // A pipe that nobody reads would hold a thread for ever.
      const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK;
      const fd = await files.open(path, flags);
      try {
        await writeAll(files, fd, [Buffer.from(`${bytes} ${count}\n`)]);
      } finally {
        await files.close(fd);
      }
    } catch (error) {
      if (isMissing(error)) this.#absent.set(path, true);
      else log.warn({ err: error }, 'a change of a mailbox was not noted in its maildirsize');
    }
  }

  /** What the file says; undefined when it must be counted. */
  async #known(mailbox: MailboxName, limit: number): Promise<Known | undefined> {
    const path = this.#fileOf(mailbox);
    try {
      const stat = await lstat(path);
      if (!stat.isFile() || stat.size > longestFile) return undefined;
      const known = parseMaildirSize(await readFile(path, 'latin1'));
      return known?.limit === limit ? { ...known, changedAt: stat.mtimeMs } : undefined;
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  #recount(mailbox: MailboxName, limit: number): Promise<MailboxUsage> {
    const path = this.#fileOf(mailbox);
    const running = this.#counting.get(path);
    if (running !== undefined) return running;
    const counting = this.#count(mailbox, limit).finally(() => this.#counting.delete(path));
    this.#counting.set(path, counting);
    return counting;
  }

  async #count(mailbox: MailboxName, limit: number): Promise<MailboxUsage> {
    const { files, log } = this.#ground;
    const usage = await this.#ground.count(mailbox);
    const temporary = join(this.#ground.pathOf(mailbox), 'tmp', `maildirsize.${uniqueId()}`);
    try {
      const fd = await files.open(temporary, 'wx', 0o600);
      try {
        await writeAll(files, fd, [Buffer.from(`${limit}S\n${usage.size} ${usage.count}\n`)]);
      } finally {
        await files.close(fd);
      }
      await files.rename(temporary, this.#fileOf(mailbox));
      this.#absent.delete(this.#fileOf(mailbox));
    } catch (error) {
      await files.unlink(temporary).catch(() => undefined);
      if (!isMissing(error)) log.warn({ err: error }, 'the maildirsize of a mailbox could not be written');
    }
    return usage;
  }

  #fileOf(mailbox: MailboxName): string {
    return `${this.#ground.pathOf(mailbox)}/maildirsize`;
  }
}

/** `<bytes>S,<count>C`, then a line for each change; undefined for anything else. */
export function parseMaildirSize(text: string): (MailboxUsage & { readonly limit: number }) | undefined {
  const [definition = '', ...changes] = text.split('\n');
  const limit = /(?:^|,)(\d{1,15})S(?:,|$)/.exec(definition)?.[1];
  if (limit === undefined) return undefined;
  let size = 0;
  let count = 0;
  for (const line of changes) {
    if (line.trim() === '') continue;
    const change = /^\s*(-?\d{1,15})\s+(-?\d{1,15})\s*$/.exec(line);
    if (change === null) return undefined;
    size += Number(change[1]);
    count += Number(change[2]);
  }
  return size < 0 || count < 0 ? undefined : { limit: Number(limit), size, count };
}
