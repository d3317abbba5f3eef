import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../clock.js';
import {
  signInProtocols,
  signInResults,
  type SignInAttempt,
  type SignInEntry,
  type SignInHistory,
  type SignInPage,
  type SignInProtocol,
  type SignInQuery,
} from '../contracts/sign-in-history.js';
import { writeFileAtomic } from '../disk/atomic.js';
import { isMissing } from '../disk/fault.js';
import { readRegularText } from '../disk/file-layer.js';
import { makeFolder } from '../disk/folder.js';
import type { Log } from '../log/log.js';
import { clientKey } from '../net/ip-address.js';
import { problem } from '../problem.js';
import { printable } from '../text/format.js';

const Entry = z.object({
  username: z.string(),
  address: z.string(),
  protocol: z.enum(signInProtocols),
  result: z.enum(signInResults),
  first: z.iso.datetime(),
  last: z.iso.datetime(),
  count: z.int().min(1),
  names: z.enum(['one', 'several']),
});

/** Days that are kept. With the bounds of a day they hold at most some 100 MB, of which strangers can fill a fifth. */
const keptDays = 90;
/**
 * Entries of a day in each class, so that none takes the place of another: an anonymous client can add to the last two
 * alone.
 */
const maxOfDay = { accepted: 5000, known: 500, unknown: 500 } as const;
type Class = keyof typeof maxOfDay;

const maxNameLength = 100;
/** Names that signed in during the kept days. */
const maxKnownNames = 50_000;
const flushMs = 1000;
/** A large day is written less often. */
const flushMsPerEntry = 2;

const dayFile = /^(\d{4}-\d{2}-\d{2})\.json$/;

/** An entry in memory; times are milliseconds. */
interface Counted extends Omit<SignInEntry, 'first' | 'last'> {
  username: string;
  readonly first: number;
  last: number;
  count: number;
  names: 'one' | 'several';
}

interface NameSource {
  readonly protocols: readonly SignInProtocol[];
  readonly nameOf: (given: string) => string | undefined;
}

interface HistoryInput {
  /** Absolute path of the folder; made when it is missing. */
  readonly folder: string;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Attempts to sign in, one JSON file for each day (UTC). Equal attempts of an hour are one entry with a count, and so are
 * the failures of a network in a day with unknown names. The file of today is replaced as a whole about a second after a
 * change, so that a crash loses that second and nothing else.
 */
export class FileSignInHistory implements SignInHistory {
  readonly #input: HistoryInput;
  readonly #names = new Set<NameSource>();
  readonly #known = new Set<string>();
  #day = '';
  #entries = new Map<string, Counted>();
  #sizes: Record<Class, number> = { accepted: 0, known: 0, unknown: 0 };
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #reading: Promise<void> = Promise.resolve();
  #isClosed = false;
  #failed = false;

  private constructor(input: HistoryInput) {
    this.#input = input;
  }

  static async open(input: HistoryInput): Promise<FileSignInHistory> {
    const history = new FileSignInHistory(input);
    await makeFolder(input.folder);
    history.#day = history.#today();
    for (const entry of await history.#read(history.#day)) history.#put(entry);
    // Many days are a lot to read, and no start waits for them.
    history.#reading = history.#readNames();
    return history;
  }

  record({ address, protocol, result, ...attempt }: SignInAttempt): void {
    const now = this.#input.clock.now();
    if (this.#today() > this.#day) this.#beginDay();
    const given = printable(attempt.username.slice(0, maxNameLength));
    const known = result === 'accepted' ? given : this.#knownName(protocol, given);
    if (result === 'accepted') this.#remember(given);
    const username = known ?? given;
    const isKnown = known !== undefined;
    const place = isKnown ? address : clientKey(address);
    const names = isKnown ? 'one' : 'several';
    this.#count({ username, address: place, protocol, result, names, first: now, last: now, count: 1 });
    const delay = flushMs + this.#entries.size * flushMsPerEntry;
    this.#timer ??= setTimeout(() => void this.flush(), delay).unref();
  }

  addNames(protocols: readonly SignInProtocol[], nameOf: NameSource['nameOf']): () => void {
    const source = { protocols, nameOf };
    this.#names.add(source);
    return () => this.#names.delete(source);
  }

  async find({ limit, cursor, ...filters }: SignInQuery): Promise<SignInPage> {
    const start = cursor === undefined ? undefined : parseCursor(cursor);
    await this.#writing;
    const fits = filterOf(filters);
    const found: Counted[] = [];
    for (const day of (await this.#days()).toReversed()) {
      if (start !== undefined && day > dayOf(start.last)) continue;
      const entries = day === this.#day ? [...this.#entries.values()] : await this.#read(day);
      found.push(...afterCursor(entries.filter(fits).toSorted(newestFirst), start));
      if (found.length > limit) break;
    }
    const items = found.slice(0, limit);
    const last = items.at(-1)?.last ?? 0;
    const before = start?.last === last ? start.skip : 0;
    const skip = before + items.filter((entry) => entry.last === last).length;
    const nextCursor = found.length > limit ? `${last.toString(36)}.${skip.toString(36)}` : null;
    return { items: items.map(shown), limit, nextCursor };
  }

  /** Writes what waits. Never rejects. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const [day, entries] = [this.#day, [...this.#entries.values()]];
    this.#writing = this.#writing.then(() => this.#write(day, entries));
    return this.#writing;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    if (this.#timer !== undefined) await this.flush();
    await this.#writing;
    await this.#reading;
  }

  /** Removes what is too old, and learns who signed in on the other days, the newest first. Never rejects. */
  async #readNames(): Promise<void> {
    await this.#removeOld();
    for (const day of (await this.#days().catch(() => [])).toReversed()) {
      if (this.#isClosed) return;
      for (const { result, username } of await this.#read(day)) if (result === 'accepted') this.#remember(username);
    }
  }

  #count(entry: Counted): void {
    const known = this.#entries.get(keyOf(entry));
    const kind = classOf(entry);
    if (known === undefined && this.#sizes[kind] >= maxOfDay[kind]) {
      // Without an address there are few of them.
      const rest = { ...entry, address: '', names: 'several' as const };
      const sum = this.#entries.get(keyOf(rest));
      if (sum === undefined) this.#put(rest);
      else addTo(sum, entry);
    } else if (known === undefined) this.#put(entry);
    else addTo(known, entry);
  }

  #put(entry: Counted): void {
    this.#entries.set(keyOf(entry), entry);
    if (entry.address !== '') this.#sizes[classOf(entry)] += 1;
  }

  #remember(username: string): void {
    if (this.#known.size < maxKnownNames) this.#known.add(username.toLowerCase());
  }

  #knownName(protocol: SignInProtocol, given: string): string | undefined {
    for (const { protocols, nameOf } of this.#names) {
      const name = protocols.includes(protocol) ? nameOf(given) : undefined;
      if (name !== undefined) return name;
    }
    return this.#known.has(given.toLowerCase()) ? given : undefined;
  }

  #beginDay(): void {
    void this.flush();
    this.#day = this.#today();
    this.#entries = new Map();
    this.#sizes = { accepted: 0, known: 0, unknown: 0 };
    this.#writing = this.#writing.then(() => this.#removeOld());
  }

  #today(): string {
    return dayOf(this.#input.clock.now());
  }

  /** Days with a file, today included, the oldest first. */
  async #days(): Promise<readonly string[]> {
    const names = await readdir(this.#input.folder);
    const days = new Set(names.flatMap((name) => dayFile.exec(name)?.[1] ?? []));
    return [...days.add(this.#day)].toSorted();
  }

  /** A file that cannot be understood counts as empty, and is left alone until it is too old, or today's. */
  async #read(day: string): Promise<readonly Counted[]> {
    try {
      const value: unknown = JSON.parse(await readRegularText(this.#path(day)));
      const lines = Array.isArray(value) ? (value as readonly unknown[]) : [];
      return lines.flatMap((line) => {
        const { data } = Entry.safeParse(line);
        return data === undefined ? [] : [{ ...data, first: Date.parse(data.first), last: Date.parse(data.last) }];
      });
    } catch (error) {
      if (!isMissing(error)) this.#input.log.warn({ err: error, day }, 'a day of sign-ins cannot be read');
      return [];
    }
  }

  async #write(day: string, entries: readonly Counted[]): Promise<void> {
    const lines = entries.map((entry) => JSON.stringify(shown(entry)));
    try {
      await writeFileAtomic(this.#path(day), `[\n${lines.join(',\n')}\n]\n`);
      this.#failed = false;
    } catch (error) {
      if (!this.#failed) this.#input.log.warn({ err: error }, 'the history of sign-ins cannot be written');
      this.#failed = true;
    }
  }

  async #removeOld(): Promise<void> {
    const oldest = dayOf(this.#input.clock.now() - keptDays * 86_400_000);
    for (const day of await this.#days().catch(() => [])) {
      if (day < oldest) await rm(this.#path(day), { force: true }).catch(() => undefined);
    }
  }

  #path(day: string): string {
    return join(this.#input.folder, `${day}.json`);
  }
}

const dayOf = (milliseconds: number): string => new Date(milliseconds).toISOString().slice(0, 10);

const classOf = ({ result, names }: Counted): Class =>
  result === 'accepted' ? 'accepted' : names === 'one' ? 'known' : 'unknown';

/** What is counted together. */
function keyOf({ username, address, protocol, result, names, first }: Counted): string {
  const own = names === 'one' ? [Math.floor(first / 3_600_000), username.toLowerCase()] : [];
  return [protocol, result, names, address, ...own].join('\0');
}

function addTo(sum: Counted, { username, last }: Counted): void {
  sum.count += 1;
  sum.last = Math.max(sum.last, last);
  sum.username = username;
}

const shown = ({ first, last, ...entry }: Counted): SignInEntry => ({
  ...entry,
  first: new Date(first).toISOString(),
  last: new Date(last).toISOString(),
});

const newestFirst = (a: Counted, b: Counted): number =>
  b.last - a.last || b.first - a.first || (keyOf(a) < keyOf(b) ? -1 : 1);

interface Position {
  readonly last: number;
  /** Entries of that time that were shown. */
  readonly skip: number;
}

function afterCursor(entries: readonly Counted[], start: Position | undefined): readonly Counted[] {
  if (start === undefined) return entries;
  const same = entries.filter(({ last }) => last === start.last).slice(start.skip);
  return [...same, ...entries.filter(({ last }) => last < start.last)];
}

function parseCursor(cursor: string): Position {
  const [, last = '', skip = ''] = /^([0-9a-z]{1,9})\.([0-9a-z]{1,6})$/.exec(cursor) ?? [];
  if (last === '') throw problem('bad-request', { errors: [{ pointer: 'cursor', message: 'is not one of ours' }] });
  return { last: parseInt(last, 36), skip: parseInt(skip, 36) };
}

function filterOf({ user, username, address, protocol, result }: Omit<SignInQuery, 'limit' | 'cursor'>) {
  const lower = (text: string | undefined) => text?.toLowerCase();
  const [part, whole, start] = [lower(user), lower(username), lower(address)];
  return (entry: Counted): boolean => {
    const name = entry.username.toLowerCase();
    return (
      (part === undefined || name.includes(part)) &&
      (whole === undefined || (name === whole && entry.names === 'one')) &&
      (start === undefined || entry.address.toLowerCase().startsWith(start)) &&
      (protocol === undefined || entry.protocol === protocol) &&
      (result === undefined || entry.result === result)
    );
  };
}
