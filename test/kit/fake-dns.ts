import type { DnsRecords, DnsType } from '../../core/contracts/dns.js';
import {
  type DnsResponse,
  dnsFailure,
  type DnsFailureKind,
  type LookupOptions,
  type MxRecord,
  questionAddress,
  questionName,
  type Resolver,
} from '../../core/dns/resolver.js';
import { DnsLookups } from '../../core/dns/plugin-dns.js';
import { systemTimers, type Timers } from '../../core/clock.js';

/** Why there is no answer. */
export type FakeFailure = Extract<DnsFailureKind, 'nxdomain' | 'nodata' | 'servfail' | 'timeout'>;

/**
 * Records in any of their usual forms: `'192.0.2.1'`, `'v=spf1 -all'`, `'10 mx.example.org'` or
 * `{ priority: 10, exchange: 'mx.example.org' }`; or the failure that a question meets.
 */
export type FakeAnswer = FakeFailure | readonly (string | DnsRecords['MX'])[] | Slow;

interface Slow {
  readonly seconds: number;
  readonly answer: Exclude<FakeAnswer, Slow>;
}

/** `example.org TXT`, or the reverse `192.0.2.1 PTR`. */
export type FakeZone = Readonly<Record<string, FakeAnswer>>;

const failures: readonly unknown[] = ['nxdomain', 'nodata', 'servfail', 'timeout'] satisfies readonly FakeFailure[];
const types: readonly string[] = ['A', 'AAAA', 'MX', 'TXT', 'PTR'] satisfies readonly DnsType[];

/** Answers what it was told, and asks nobody. A name without any record does not exist; a known one has no other records. */
export class FakeDns implements Resolver {
  /** What was asked, in order: `example.org TXT`. */
  readonly questions: string[] = [];
  readonly #known = new Map<string, FakeAnswer>();
  readonly #waiting = new Map<string, (() => void)[]>();
  #timers: Timers = systemTimers;

  constructor(zone: FakeZone = {}) {
    for (const [question, answer] of Object.entries(zone)) this.set(question, answer);
  }

  /** An answer that comes after so many seconds of the clock. Plugins wait 5 seconds for the DNS. */
  static slow(answer: Slow['answer'], { seconds }: { readonly seconds: number }): Slow {
    return { answer, seconds };
  }

  /** From now on this is the answer. */
  set(question: string, answer: FakeAnswer): this {
    const key = keyOf(question);
    refuseStrange(key, isSlow(answer) ? answer.answer : answer);
    this.#known.set(key, answer);
    return this;
  }

  /** From now on there is no such record. */
  delete(question: string): this {
    this.#known.delete(keyOf(question));
    return this;
  }

  /** Resolves when that was asked, or at once if it was already: then a clock can be turned for a slow answer. */
  asked(question: string): Promise<void> {
    const key = keyOf(question);
    if (this.questions.includes(key)) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.set(key, [...(this.#waiting.get(key) ?? []), resolve]));
  }

  /** As `node:dns` does, for libraries that want a resolver; it is bound. */
  readonly resolve = (name: string, type: string): Promise<DnsRecords[DnsType][]> =>
    new DnsLookups({ resolver: this, timers: this.#timers }).resolve(name, type);

  /** Whose seconds slow answers take. */
  useTimers(timers: Timers): void {
    this.#timers = timers;
  }

  resolveMx(name: string, options?: LookupOptions): Promise<DnsResponse<MxRecord>> {
    return this.#ask(name, 'MX', options, mxOf);
  }

  resolve4(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#ask(name, 'A', options, textOf);
  }

  resolve6(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#ask(name, 'AAAA', options, textOf);
  }

  resolveTxt(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#ask(name, 'TXT', options, textOf);
  }

  resolvePtr(address: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#ask(address, 'PTR', options, textOf);
  }

  async #ask<T>(
    name: string,
    type: DnsType,
    options: LookupOptions | undefined,
    recordOf: (written: string | DnsRecords['MX']) => T,
  ): Promise<DnsResponse<T>> {
    const key = keyOf(`${name} ${type}`);
    this.questions.push(key);
    for (const wake of this.#waiting.get(key) ?? []) wake();
    this.#waiting.delete(key);
    const known = this.#known.get(key) ?? (this.#knows(name) ? 'nodata' : 'nxdomain');
    const answer = isSlow(known) ? await this.#later(known, key, options?.signal) : known;
    if (typeof answer === 'string') throw dnsFailure(answer, key);
    if (answer.length === 0) throw dnsFailure('nodata', key);
    return { records: answer.map(recordOf), ttl: undefined };
  }

  #knows(name: string): boolean {
    const prefix = keyOf(`${name} A`).slice(0, -1);
    return [...this.#known.keys()].some((key) => key.startsWith(prefix));
  }

  #later({ seconds, answer }: Slow, question: string, signal: AbortSignal | undefined): Promise<Slow['answer']> {
    return new Promise((resolve, reject) => {
      const cancel = this.#timers.after(seconds * 1000, () => resolve(answer));
      signal?.addEventListener('abort', () => {
        cancel();
        reject(dnsFailure('aborted', question));
      });
    });
  }
}

/** A question in its one spelling. Throws a TypeError for what is none. */
function keyOf(question: string): string {
  const [name = '', type = '', ...more] = question.trim().split(/\s+/);
  const asked = type.toUpperCase();
  const bare = asked === 'PTR' ? questionAddress(name) : questionName(name);
  if (bare === undefined || more.length > 0 || !types.includes(asked)) {
    throw new TypeError(
      `FakeDns: ${JSON.stringify(question)} is no question: write "example.org TXT" or "192.0.2.1 PTR".`,
    );
  }
  return `${bare} ${asked}`;
}

const isSlow = (answer: FakeAnswer): answer is Slow =>
  typeof answer === 'object' && answer !== null && 'seconds' in answer;

/** Zones are often plain JavaScript. */
function refuseStrange(question: string, answer: unknown): void {
  const isGood = Array.isArray(answer) ? answer.every(recordTest(question)) : failures.includes(answer);
  if (isGood) return;
  throw new TypeError(
    `FakeDns: ${JSON.stringify(answer)} is no answer to ${question}: give a list of records, or one of ${failures.join(', ')}.`,
  );
}

function recordTest(question: string): (record: unknown) => boolean {
  if (!question.endsWith(' MX')) return (record) => typeof record === 'string';
  return (record) =>
    typeof record === 'string'
      ? /^\d+ \S+$/.test(record)
      : typeof record === 'object' && record !== null && 'exchange' in record && 'priority' in record;
}

function textOf(written: string | DnsRecords['MX']): string {
  return typeof written === 'string' ? written : `${written.priority} ${written.exchange}`;
}

function mxOf(written: string | DnsRecords['MX']): MxRecord {
  if (typeof written !== 'string') return { exchange: written.exchange, preference: written.priority };
  const [preference = '', exchange = ''] = written.split(' ');
  return { exchange: exchange.replace(/\.$/, ''), preference: Number(preference) };
}
