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

/** Contents of a mailbox, in all its folders. */
export interface MailboxUsage {
  /** Bytes. */
  readonly size: number;
  readonly count: number;
}

/** Quota reserved for an operation until it succeeds or fails. */
export interface QuotaReservation {
  /** Records the usage. Never rejects. */
  commit(size: number, count: number): Promise<void>;
  /** Releases the reservation after a failure, or when the usage was recorded otherwise. */
  release(): void;
}

interface QuotaDeps {
  readonly files: FileLayer;
  readonly clock: Clock;
  readonly log: Log;
  readonly pathOf: (mailbox: MailboxName) => string;
  /** Bytes; null for none. */
  readonly limitOf: (mailbox: MailboxName) => number | null | Promise<number | null>;
  /** Counts every message. */
  readonly count: (mailbox: MailboxName) => Promise<MailboxUsage>;
}

/** A longer file is recalculated (Maildir++). */
const maxFileBytes = 5120;
/** A mailbox that seems full is counted again when its file is older. */
const recountAfterMs = 15 * 60_000;
/** How long the absence of the file is cached: another program may create it. */
const absentMs = 60_000;

interface Known extends MailboxUsage {
  readonly limit: number;
  readonly changedAt: number;
}

/**
 * Quotas according to Maildir++: the file `maildirsize` of a mailbox holds the limit, and the changes since the last
 * count. Compatible with other programs that use the file. An estimate that is recounted when in doubt.
 */
export class MailboxQuotas {
  readonly #deps: QuotaDeps;
  readonly #counting = new Map<string, Promise<MailboxUsage>>();
  readonly #held: QuotaReservations;
  readonly #turns = new KeyedMutex();
  readonly #absent = new LRUCache<string, true>({ ...cacheSize(10_000), ttl: absentMs });

  constructor(deps: QuotaDeps) {
    this.#deps = deps;
    this.#held = new QuotaReservations(deps.clock);
  }

  /**
   * Rejects with the problem `mailbox-full` when that many more bytes exceed the quota. Returns no promise for a
   * mailbox without a quota.
   */
  requireRoom(mailbox: MailboxName, bytes: number): Promise<void> | undefined {
    const limit = this.#deps.limitOf(mailbox);
    return limit === null ? undefined : this.#admit(mailbox, bytes, limit);
  }

  /** Like `requireRoom`, but also reserves the bytes. The caller must commit or release the reservation. */
  reserve(mailbox: MailboxName, bytes: number): Promise<QuotaReservation> | undefined {
    const limit = this.#deps.limitOf(mailbox);
    return limit === null ? undefined : this.#reserve(mailbox, bytes, limit);
  }

  /** Reserves the bytes, runs `place` and records the usage. @throws Problem `mailbox-full` */
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

  /** Recorded and reserved bytes are checked and changed in one step, so that nothing counts twice or not at all. */
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
    const isFresh = known !== undefined && this.#deps.clock.now() - known.changedAt < recountAfterMs;
    if (!isFresh && fits(await this.#recount(mailbox, limit))) return;
    throw problem('mailbox-full', 'There is no room left in this mailbox: its quota is used up.');
  }

  /** Records a change (negative for a removal). Never rejects, since the change itself is done. */
  async noteChange(mailbox: MailboxName, bytes: number, count: number): Promise<void> {
    const path = this.#fileOf(mailbox);
    if ((bytes === 0 && count === 0) || this.#absent.has(path)) return;
    const { files, log } = this.#deps;
    try {
      // A FIFO without a reader would block a thread.
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

  /** Contents of the file; undefined when the mailbox must be counted. */
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
    const { files, log } = this.#deps;
    const usage = await this.#deps.count(mailbox);
    const temporary = join(this.#deps.pathOf(mailbox), 'tmp', `maildirsize.${uniqueId()}`);
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
    return `${this.#deps.pathOf(mailbox)}/maildirsize`;
  }
}

/** Parses `<bytes>S,<count>C`, then a line for each change; undefined for anything else. */
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

/** Reservations expire after this, so that a hanging operation does not fill a mailbox permanently. */
const maxReservationMs = 15 * 60_000;

/** Reserved bytes by mailbox. */
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

  /** Returns the release function; a second call of it does nothing. */
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
 * Defers a recipient whose mailbox is full; other recipients of the message are not affected. Uses the size that MAIL
 * declared (RFC 1870).
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
