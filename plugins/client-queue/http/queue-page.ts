import type { z } from 'zod';
import { entryStates } from '../../../core/contracts/queue-entry.js';
import { entrySorts, type EntryFilter } from '../../../core/contracts/queue-list.js';
import type { RecordedControl } from '../delivery/destination-controls.js';
import type { EntryAnswer, StatisticsAnswer, SummaryAnswer } from './entry-answer.js';
import { isoTime } from './entry-answer.js';
import { writtenFilter } from './queue-query.js';
import { isOpen } from './selection.js';
import { siteLabel } from '../delivery/site-key.js';

type Statistics = z.output<typeof StatisticsAnswer>;
type Summary = z.output<typeof SummaryAnswer>;
type Entry = z.output<typeof EntryAnswer>;

/** Rows of the tables on top; the whole is in the statistics. */
export const mostRows = 12;
const listPath = '/client/queue/list';

const linkTo = (filter: EntryFilter): string =>
  `${listPath}?${new URLSearchParams(Object.entries(filter).map(([name, value]): [string, string] => [name, String(value)])).toString()}#entries`;

/** `< 5 min`, `< 10 min` … `older`: the columns of the table by age. */
function ageColumns(limits: readonly number[]) {
  return [...limits.map((limit) => ({ label: `< ${ageLabel(limit)}` })), { label: 'older' }];
}

function ageLabel(minutes: number): string {
  if (minutes < 60) return `${minutes} min`;
  const hours = minutes / 60;
  return hours < 24 ? `${Number(hours.toFixed(1))} h` : `${Number((hours / 24).toFixed(1))} d`;
}

/** From which age, and up to which, in seconds. */
function ageRange(limits: readonly number[], index: number): EntryFilter {
  const from = index === 0 ? undefined : limits[index - 1];
  const to = limits[index];
  return {
    ...(from !== undefined && { olderThan: from * 60 }),
    ...(to !== undefined && { youngerThan: to * 60 }),
  };
}

const controlPath = (key: string): string => `/client/destinations/${encodeURIComponent(key)}`;

function destinationRow(
  row: Statistics['byDestination'][number],
  limits: readonly number[],
  controls: ReadonlyMap<string, RecordedControl>,
) {
  const { destination, site, total, ages, oldest, active, lastReply } = row;
  const most = Math.max(...ages, 1);
  return {
    destination,
    site: siteLabel(site, destination),
    siteHref: site === null ? null : controlPath(site),
    href: linkTo({ destination }),
    controlHref: controlPath(destination),
    total,
    oldest,
    active,
    lastReply,
    suspended: [destination, site ?? ''].some((key) => (controls.get(key)?.suspendedUntil ?? null) !== null),
    cells: ages.map((count, index) => ({
      count,
      // Four steps of colour; the number itself stands in the cell.
      heat: count === 0 ? 0 : Math.min(4, 1 + Math.floor((3 * count) / most)),
      href: linkTo({ destination, ...ageRange(limits, index) }),
      age: index === 0 ? `younger than ${ageLabel(limits[0] ?? 0)}` : `older than ${ageLabel(limits[index - 1] ?? 0)}`,
    })),
  };
}

/** The figures on top of the queue, refreshed by themselves. */
export function statisticsPage(
  statistics: Statistics,
  controls: readonly RecordedControl[],
  { now, damage, destinationCount }: Pick<ListAbout, 'now' | 'damage' | 'destinationCount'>,
) {
  const { byState, byDestination, byReason, ageLimits, oldest, open, bytes, quarantined } = statistics;
  const byName = new Map(controls.map((control) => [control.destination, control]));
  const suspended = controls.filter(({ suspendedUntil }) => suspendedUntil !== null && suspendedUntil > now);
  return {
    states: (['queued', 'active', 'deferred', 'held'] as const).map((state) => ({
      state,
      count: byState[state] ?? 0,
      href: linkTo({ state: [state] }),
    })),
    open,
    bytes,
    oldest,
    quarantined,
    damage,
    ageColumns: ageColumns(ageLimits),
    destinations: byDestination.slice(0, mostRows).map((row) => destinationRow(row, ageLimits, byName)),
    moreDestinations: Math.max(0, destinationCount - mostRows),
    reasons: byReason
      .slice(0, mostRows)
      .map(({ reason, count, example }) => ({ reason, count, example, href: linkTo({ reason }) })),
    moreReasons: Math.max(0, byReason.length - mostRows),
    suspended: suspended.map(({ destination, reason, suspendedUntil }) => ({
      destination,
      reason,
      until: suspendedUntil === null || !Number.isFinite(suspendedUntil) ? null : isoTime(suspendedUntil),
      href: controlPath(destination),
    })),
  };
}

interface ListAnswer {
  readonly items: readonly Summary[];
  readonly total: number;
  readonly page: number | null;
  readonly limit: number;
  readonly nextCursor: string | null;
  readonly prevCursor: string | null;
  readonly statistics: Statistics;
}

interface ListAbout {
  readonly filter: EntryFilter;
  readonly sort: string;
  readonly order: string;
  readonly listPath: string;
  readonly controls: readonly RecordedControl[];
  readonly siteOf: (destination: string) => string | undefined;
  readonly now: number;
  readonly damage: string | undefined;
  /** Of the whole queue: the answer may have only the first rows. */
  readonly destinationCount: number;
}

const sortLabels: Readonly<Record<string, string>> = {
  queuedAt: 'Queued',
  nextAttempt: 'Next attempt',
  lastAttempt: 'Last attempt',
  expiresAt: 'Expires',
  size: 'Size',
  attempts: 'Attempts',
  sender: 'Sender',
};

export function listPage(answer: ListAnswer, about: ListAbout) {
  const { filter } = about;
  const suspended = new Set(
    about.controls.filter(({ suspendedUntil }) => suspendedUntil !== null).map(({ destination }) => destination),
  );
  const isSuspended = (destination: string): boolean =>
    suspended.has(destination) || suspended.has(about.siteOf(destination) ?? '');
  const state = filter.state?.length === 1 ? filter.state[0] : filter.state === undefined ? '' : 'all';
  return {
    overview: statisticsPage(answer.statistics, about.controls, about),
    list: { ...answer, items: answer.items.map((entry) => rowOf(entry, isSuspended)) },
    filter: { ...filter, state },
    filtered: Object.keys(filter).length > 0,
    furtherFilters: [
      filter.sender,
      filter.recipient,
      filter.domain,
      filter.destination,
      filter.reason,
      filter.olderThan,
      filter.youngerThan,
      filter.since,
      filter.minAttempts,
    ].some((value) => value !== undefined),
    written: writtenFilter(filter),
    sort: about.sort,
    order: about.order,
    listPath: about.listPath,
    stateChoices: [
      { value: '', label: 'Open' },
      ...entryStates.map((word) => ({ value: word, label: word[0]?.toUpperCase() + word.slice(1) })),
      { value: 'all', label: 'All' },
    ],
    sortChoices: entrySorts.map((value) => ({ value, label: sortLabels[value] ?? value })),
    orderChoices: [
      { value: 'desc', label: 'Last first' },
      { value: 'asc', label: 'First first' },
    ],
  };
}

/** Recipients that a row shows; more of them are counted. */
const shownRecipients = 2;

function rowOf(entry: Summary, isSuspended: (destination: string) => boolean) {
  const open = entry.recipients.filter(({ state }) => isOpen(state));
  const shown = open.length > 0 ? open : entry.recipients;
  const replies = shown.flatMap(({ lastReply }) => lastReply ?? []).sort((a, b) => (a.at < b.at ? 1 : -1));
  return {
    ...entry,
    // What was said of those who are settled is no reason to wait.
    lastReply: replies[0] ?? (open.length > 0 ? null : entry.lastReply),
    suspended: open.length > 0 && open.every(({ destination }) => isSuspended(destination)),
    href: `/client/queue/${entry.uid}`,
    shown: shown.slice(0, shownRecipients).map(({ address }) => address),
    more: Math.max(0, shown.length - shownRecipients),
  };
}

export function entryPage(entry: Entry, header: readonly (readonly [string, string])[], mayReadMail: boolean) {
  const isStillOpen = isOpen(entry.state);
  return {
    ...entry,
    header,
    mayReadMail,
    isOpen: isStillOpen,
    logHref: `/logs?q=${encodeURIComponent(entry.uid)}`,
    messageHref: `/client/queue/${entry.uid}/message`,
    noticeHref: entry.noticeOf === null ? null : `/client/queue/${entry.noticeOf}`,
    back: `/client/queue/${entry.uid}`,
    history: entry.history.toReversed(),
    openCount: entry.recipients.filter(({ state }) => isOpen(state)).length,
  };
}
