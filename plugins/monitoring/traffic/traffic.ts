import type { Clock } from '../../../core/clock.js';
import type { Outcome, WatchedEvents } from '../../../core/pipeline/events.js';
import { targets } from '../../../core/contracts/targets.js';
import type { PluginContext } from '../../../core/plugin.js';
import {
  dayMs,
  type HourRecord,
  hourMs,
  maxNameLength,
  maxTop,
  type Ranking,
  type TopKind,
  type TrafficFiles,
  type TrafficKind,
  trafficKinds,
} from './traffic-files.js';

/** Names that are counted within an hour; with more, the rare ones are dropped. */
const maxNames = 400;

/** Counts of the running hour. */
class OpenHour {
  readonly hour: number;
  readonly #counts: Record<TrafficKind, number>;
  readonly #names: Readonly<Record<TopKind, Map<string, number>>>;
  isChanged = false;

  constructor(hour: number, record: HourRecord | undefined) {
    this.hour = hour;
    this.#counts = { ...(record?.counts ?? noCounts) };
    const names = (kind: TopKind): Map<string, number> => new Map(record?.top[kind]);
    this.#names = { destinations: names('destinations'), senders: names('senders'), rejections: names('rejections') };
  }

  count(kind: TrafficKind): void {
    this.isChanged = true;
    this.#counts[kind] += 1;
  }

  name(kind: TopKind, text: string): void {
    this.isChanged = true;
    const names = this.#names[kind];
    const name = text.slice(0, maxNameLength);
    names.set(name, (names.get(name) ?? 0) + 1);
    if (names.size <= maxNames) return;
    const kept = ranking(names, maxNames / 2);
    names.clear();
    for (const [one, count] of kept) names.set(one, count);
  }

  record(): HourRecord {
    const { destinations, senders, rejections } = this.#names;
    const top = {
      destinations: ranking(destinations, maxTop),
      senders: ranking(senders, maxTop),
      rejections: ranking(rejections, maxTop),
    };
    return { counts: { ...this.#counts }, top };
  }
}

const noCounts: Readonly<Record<TrafficKind, number>> = {
  received: 0,
  sent: 0,
  deferred: 0,
  bounced: 0,
  rejected: 0,
  notices: 0,
};

function ranking(names: ReadonlyMap<string, number>, most: number): Ranking {
  return [...names].toSorted(([, a], [, b]) => b - a).slice(0, most);
}

export const trafficRanges = ['24h', '30d'] as const;
export type TrafficRange = (typeof trafficRanges)[number];

/** Mail of a range, beside the range of the same length before it. */
export interface TrafficReport {
  readonly range: TrafficRange;
  /** ISO 8601 time at which the range begins; it ends now. */
  readonly since: string;
  /** Seconds of one step of `series`. */
  readonly step: number;
  readonly counts: Readonly<
    Record<TrafficKind, { readonly total: number; readonly before: number; readonly series: readonly number[] }>
  >;
  /** Returned recipients of all that were sent or returned, 0 to 1; null without any. */
  readonly failureRate: { readonly now: number | null; readonly before: number | null };
  readonly top: Readonly<Record<TopKind, readonly { readonly name: string; readonly count: number }[]>>;
}

const steps = { '24h': { ms: hourMs, count: 24 }, '30d': { ms: dayMs, count: 30 } } as const;
const shownTop = 10;

/** Counts mail by the hour, on disk, so that a kill loses a minute at most. */
export class Traffic {
  readonly #clock: Clock;
  readonly #files: TrafficFiles;
  #open: OpenHour;

  constructor(files: TrafficFiles, clock: Clock) {
    this.#clock = clock;
    this.#files = files;
    this.#open = this.#hourAt(Math.floor(clock.now() / hourMs));
  }

  count(kind: TrafficKind): void {
    this.#current().count(kind);
  }

  name(kind: TopKind, text: string): void {
    this.#current().name(kind, text);
  }

  /** Writes the running hour. Never rejects: what cannot be written is written next time. */
  async save(): Promise<void> {
    const open = this.#current();
    if (open.isChanged) this.#files.set(open.hour, open.record());
    open.isChanged = false;
    await this.#files.save();
  }

  report(range: TrafficRange): TrafficReport {
    const open = this.#current();
    if (open.isChanged) this.#files.set(open.hour, open.record());
    const { ms, count } = steps[range];
    const end = (Math.floor((open.hour * hourMs) / ms) + 1) * ms;
    const since = end - count * ms;
    const now = this.#files.hours(since, end);
    const before = this.#files.hours(since - count * ms, since);
    const sum = (records: Iterable<HourRecord>, kind: TrafficKind): number =>
      [...records].reduce((total, { counts }) => total + counts[kind], 0);
    const series = (kind: TrafficKind): readonly number[] =>
      Array.from({ length: count }, (_, step) => {
        const from = since + step * ms;
        return sum(this.#files.hours(from, from + ms).values(), kind);
      });
    const counts = Object.fromEntries(
      trafficKinds.map((kind) => [
        kind,
        { total: sum(now.values(), kind), before: sum(before.values(), kind), series: series(kind) },
      ]),
    ) as TrafficReport['counts'];
    const { sent, bounced } = counts;
    const rate = (failed: number, good: number): number | null =>
      failed + good === 0 ? null : failed / (failed + good);
    return {
      range,
      since: new Date(since).toISOString(),
      step: ms / 1000,
      counts,
      failureRate: { now: rate(bounced.total, sent.total), before: rate(bounced.before, sent.before) },
      top: {
        destinations: merged(now.values(), 'destinations'),
        senders: merged(now.values(), 'senders'),
        rejections: merged(now.values(), 'rejections'),
      },
    };
  }

  #current(): OpenHour {
    const hour = Math.floor(this.#clock.now() / hourMs);
    if (hour === this.#open.hour) return this.#open;
    if (this.#open.isChanged) this.#files.set(this.#open.hour, this.#open.record());
    // A clock that is put back continues the hour that it has counted before.
    this.#open = this.#hourAt(hour);
    return this.#open;
  }

  #hourAt(hour: number): OpenHour {
    return new OpenHour(hour, this.#files.hours(hour * hourMs, (hour + 1) * hourMs).get(hour));
  }
}

function merged(records: Iterable<HourRecord>, kind: TopKind): TrafficReport['top'][TopKind] {
  const names = new Map<string, number>();
  for (const { top } of records) {
    for (const [name, count] of top[kind]) names.set(name, (names.get(name) ?? 0) + count);
  }
  return ranking(names, shownTop).map(([name, count]) => ({ name, count }));
}

/** Targets whose `delivered` means a place of this server; another server has the mail only after an `outcome`. */
const ownTargets: ReadonlySet<string> = new Set(Object.values(targets));

/** Counts the events of mail. */
export function countTraffic({ smtp }: Pick<PluginContext, 'smtp'>, traffic: Traffic): void {
  smtp.watch('accepted', ({ transaction: { session, reversePath } }) => {
    if (session.internal === true && reversePath === null) {
      traffic.count('notices');
      return;
    }
    traffic.count('received');
    traffic.name('senders', reversePath?.address ?? '<>');
  });
  smtp.watch('rejected', (rejected) => {
    traffic.count('rejected');
    traffic.name('rejections', replyText(rejected));
  });
  smtp.watch('delivered', ({ recipient, target }) => {
    if (!ownTargets.has(target)) countSent(traffic, recipient.address.domain);
  });
  smtp.watch('deferred', () => traffic.count('deferred'));
  smtp.watch('outcome', (outcome) => countOutcome(traffic, outcome));
}

function countOutcome(traffic: Traffic, { status, attempts, recipient, target }: Outcome): void {
  if (status === 'deferred' && attempts === 1) traffic.count('deferred');
  else if (status === 'bounced' || status === 'expired') traffic.count('bounced');
  else if (status === 'delivered' && target !== targets.mailbox) countSent(traffic, recipient.domain);
}

function countSent(traffic: Traffic, domain: string): void {
  traffic.count('sent');
  traffic.name('destinations', domain);
}

/** The reply of a refusal, without what differs from one client to the next: addresses and long numbers. */
function replyText({ code, status, text }: WatchedEvents['rejected']): string {
  const general = text
    .replaceAll(/<[^>]*>/g, '<…>')
    .replaceAll(/[^\s,()[\]]*(?:\d{4}|\d+\.\d+\.\d|:[0-9a-f]*:)[^\s,()[\]]*/gi, '…');
  return `${code} ${status} ${general}`;
}
