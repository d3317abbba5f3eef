import { constants } from 'node:fs';
import { lstat, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { cacheSize } from '../../../core/disk/cache-size.js';
import type { Clock } from '../../../core/clock.js';
import { KeyedMutex } from '../../../core/concurrency.js';
import type { Directory, MailUser } from '../../../core/contracts/directory.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isMissing } from '../../../core/disk/fault.js';
import { type FileLayer, writeAll } from '../../../core/disk/file-layer.js';
import { uniqueId } from '../../../core/disk/id.js';
import type { Log } from '../../../core/log/log.js';
import type { Hook } from '../../../core/pipeline/hook.js';
import { defer, next, type Verdict } from '../../../core/pipeline/verdict.js';
import { isProblem, problem } from '../../../core/problem.js';
import { mailboxNameOf } from '../maildir/mailbox-name.js';

/** What a mailbox holds, in all its folders. */
export interface MailboxUsage {
  /** Bytes. */
  readonly size: number;
  readonly count: number;
}

/** Room that is set aside for what is on its way into a mailbox, until that is there or has failed. */
export interface QuotaReservation {
  /** It came. Never rejects. */
  commit(size: number, count: number): Promise<void>;
  /** It did not come, or was noted already. */
  release(): void;
}

interface QuotaGround {
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
const maxFileBytes = 5120;
/** A mailbox that seems full is counted again when its file is older than that. */
const recountAfterMs = 15 * 60_000;
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
  readonly #held: QuotaReservations;
  readonly #turns = new KeyedMutex();
  readonly #absent = new LRUCache<string, true>({ ...cacheSize(10_000), ttl: absentMs });

  constructor(ground: QuotaGround) {
    this.#ground = ground;
    this.#held = new QuotaReservations(ground.clock);
  }

  /** Rejects with the problem `mailbox-full` when so many bytes more would be too much. No promise for a mailbox without a quota. */
  requireRoom(mailbox: MailboxName, bytes: number): Promise<void> | undefined {
    const limit = this.#ground.limitOf(mailbox);
    return limit === null ? undefined : this.#admit(mailbox, bytes, limit);
  }

  /** As `requireRoom`, and nobody else is admitted to that room. The caller takes it or gives it back, whatever happens. */
  reserve(mailbox: MailboxName, bytes: number): Promise<QuotaReservation> | undefined {
    const limit = this.#ground.limitOf(mailbox);
    return limit === null ? undefined : this.#reserve(mailbox, bytes, limit);
  }

  /** Notes what `place` puts into the mailbox, for which there must be so many bytes more. @throws Problem `mailbox-full` */
  async whileReserved<T>(mailbox: MailboxName, bytes: number, came: MailboxUsage, place: () => Promise<T>): Promise<T> {
    const room = await this.reserve(mailbox, bytes);
    try {
      const placed = await place();
      await (room?.commit(came.size, came.count) ?? this.noteChange(mailbox, came.size, came.count));
      return placed;
    } finally {
      room?.release();
    }
  }

  /** What is noted and what is held are looked at and changed together, so that nothing counts twice or not at all. */
  #reserve(mailbox: MailboxName, bytes: number, limit: number | Promise<number | null>): Promise<QuotaReservation> {
    const path = this.#fileOf(mailbox);
    return this.#turns.run(path, async () => {
      if (bytes > 0) await this.#admit(mailbox, bytes, limit);
      const release = this.#held.reserve(path, Math.max(0, bytes));
      const commit = (size: number, count: number): Promise<void> =>
        this.#turns.run(path, async () => {
          await this.noteChange(mailbox, size, count);
          release();
        });
      return { commit, release };
    });
  }

  async #admit(mailbox: MailboxName, bytes: number, given: number | Promise<number | null>): Promise<void> {
    const limit = await given;
    if (limit === null) return;
    const known = await this.#known(mailbox, limit);
    const fits = ({ size }: MailboxUsage): boolean => size + this.#held.bytes(this.#fileOf(mailbox)) + bytes <= limit;
    if (known !== undefined && fits(known)) return;
    const isFresh = known !== undefined && this.#ground.clock.now() - known.changedAt < recountAfterMs;
    if (!isFresh && fits(await this.#recount(mailbox, limit))) return;
    throw problem('mailbox-full', 'There is no room left in this mailbox: its quota is used up.');
  }

  /** Notes what came (or went, negative). Never rejects: the change itself is done. */
  async noteChange(mailbox: MailboxName, bytes: number, count: number): Promise<void> {
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
      if (!stat.isFile() || stat.size > maxFileBytes) return undefined;
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
function parseMaildirSize(text: string): (MailboxUsage & { readonly limit: number }) | undefined {
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

interface Hold {
  readonly bytes: number;
  /** By the monotonic clock. */
  readonly since: number;
}

/** What takes longer than that hangs, and shall not fill a mailbox for ever. */
const maxReservationMs = 15 * 60_000;

/** What was admitted to mailboxes and is on its way. */
class QuotaReservations {
  readonly #clock: Clock;
  readonly #holds = new Map<string, Set<Hold>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Bytes. */
  bytes(mailbox: string): number {
    let sum = 0;
    const earliest = this.#clock.monotonic() - maxReservationMs;
    for (const { bytes, since } of this.#holds.get(mailbox) ?? []) if (since > earliest) sum += bytes;
    return sum;
  }

  /** The answer gives it back; a second call of it does nothing. */
  reserve(mailbox: string, bytes: number): () => void {
    const hold = { bytes, since: this.#clock.monotonic() };
    const holds = this.#holds.get(mailbox) ?? new Set();
    this.#holds.set(mailbox, holds.add(hold));
    return () => {
      holds.delete(hold);
      if (holds.size === 0 && this.#holds.get(mailbox) === holds) this.#holds.delete(mailbox);
    };
  }
}

/**
 * Refuses a recipient whose mailbox is full, for now: other recipients of the message are not concerned. The size is what
 * MAIL declared (RFC 1870).
 */
export function quotaHook(
  directory: Pick<Directory, 'resolve'>,
  quotas: Pick<MailboxQuotas, 'requireRoom'>,
): Hook<'rcptTo'> {
  const room = (user: MailUser | undefined, bytes: number): Verdict | Promise<Verdict> =>
    user === undefined || user.quota === null ? next() : verdictFor(user, bytes, quotas);
  return ({ address, transaction }) => {
    const user = directory.resolve(address);
    const bytes = transaction.declaredSize ?? 1;
    return user instanceof Promise ? user.then((found) => room(found, bytes)) : room(user, bytes);
  };
}

async function verdictFor(user: MailUser, bytes: number, quotas: Pick<MailboxQuotas, 'requireRoom'>): Promise<Verdict> {
  try {
    await quotas.requireRoom(mailboxNameOf(user.address), bytes);
    return next();
  } catch (error) {
    if (isProblem(error) && error.problem === 'mailbox-full') return defer(452, '4.2.2', 'The mailbox is full');
    throw error;
  }
}
