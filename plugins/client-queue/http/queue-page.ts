import { z } from 'zod';
import { type EntryState, entryStates, openStates } from '../../../core/contracts/queue-entry.js';
import { type EntryFilter, entrySorts } from '../../../core/contracts/relay-queue.js';
import { parseTime } from '../../../core/text/format.js';
import type { RecordedControl } from '../delivery/destination-controls.js';
import { siteLabel } from '../delivery/destination.js';
import {
  type EntryAnswer,
  isoTime,
  maxDestinations,
  type StatisticsAnswer,
  type EntrySummaryAnswer,
} from './entry-answer.js';

type Statistics = z.output<typeof StatisticsAnswer>;
type Summary = z.output<typeof EntrySummaryAnswer>;
type Entry = z.output<typeof EntryAnswer>;

/** Rows of the tables at the top; the statistics have all of them. */
const maxRows = maxDestinations.page;
const listPath = '/client/queue/list';

const statisticsPath = '/client/queue/statistics';

const queryOf = (filter: EntryFilter): string =>
  new URLSearchParams(
    Object.entries(filter).map(([name, value]): [string, string] => [name, String(value)]),
  ).toString();

const linkTo = (filter: EntryFilter): string => `${listPath}?${queryOf(filter)}#entries`;

/** `< 5 min`, `< 10 min` … `older`: the columns of the table by age. */
function ageColumns(limits: readonly number[]) {
  return [...limits.map((limit) => ({ label: `< ${ageLabel(limit)}` })), { label: 'older' }];
}

function ageLabel(minutes: number): string {
  if (minutes < 60) return `${minutes} min`;
  const hours = minutes / 60;
  return hours < 24 ? `${Number(hours.toFixed(1))} h` : `${Number((hours / 24).toFixed(1))} d`;
}

/** Minimum and maximum age in seconds. */
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
  { byName, filter }: { readonly byName: ReadonlyMap<string, RecordedControl>; readonly filter: EntryFilter },
) {
  const { destination, site, total, ages, oldest, active, lastReply } = row;
  const most = Math.max(...ages, 1);
  return {
    destination,
    site: siteLabel(site, destination),
    siteHref: site === null ? null : controlPath(site),
    href: linkTo({ ...filter, destination }),
    controlHref: controlPath(destination),
    total,
    oldest,
    active,
    lastReply,
    suspended: [destination, site ?? ''].some((key) => (byName.get(key)?.suspendedUntil ?? null) !== null),
    cells: ages.map((count, index) => ({
      count,
      // Four shades; the cell shows the number as well.
      heat: count === 0 ? 0 : Math.min(4, 1 + Math.floor((3 * count) / most)),
      href: linkTo({ ...filter, destination, ...ageRange(limits, index) }),
      age: index === 0 ? `younger than ${ageLabel(limits[0] ?? 0)}` : `older than ${ageLabel(limits[index - 1] ?? 0)}`,
    })),
  };
}

/** Older figures have their time beside them. */
const freshMs = 5000;

/** Figures at the top of the queue page, which refresh themselves. */
export function statisticsPage(
  statistics: Statistics,
  controls: readonly RecordedControl[],
  { now, complaint, filter = {}, matching }: StatisticsAbout,
) {
  const { byState, oldest, open, bytes, quarantined } = statistics;
  const isFiltered = matching !== undefined;
  const hasFilter = Object.keys(filter).length > 0;
  const { at } = matching ?? statistics;
  const { byDestination, destinationCount, byReason, bySender, senderCount, ageLimits } = matching ?? statistics;
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
    complaint,
    countedAt: now - Date.parse(at) > freshMs ? at : null,
    isFiltered,
    isTooSlow: !isFiltered && hasFilter,
    refreshPath: hasFilter ? `${statisticsPath}?${queryOf(filter)}` : statisticsPath,
    ageColumns: ageColumns(ageLimits),
    destinations: byDestination.slice(0, maxRows).map((row) => destinationRow(row, ageLimits, { byName, filter })),
    moreDestinations: Math.max(0, destinationCount - maxRows),
    reasons: byReason
      .slice(0, maxRows)
      .map(({ reason, count, example }) => ({ reason, count, example, href: linkTo({ ...filter, reason }) })),
    moreReasons: Math.max(0, byReason.length - maxRows),
    senders: bySender.slice(0, maxRows).map(({ sender, count, messages }) => ({
      sender: sender === '' ? '<>' : sender,
      count,
      messages,
      href: linkTo({ ...filter, sender: sender === '' ? '<>' : sender }),
    })),
    moreSenders: Math.max(0, senderCount - maxRows),
    suspended: suspended.map(({ destination, reason, suspendedUntil }) => ({
      destination,
      reason,
      until: suspendedUntil === null || !Number.isFinite(suspendedUntil) ? null : isoTime(suspendedUntil),
      href: controlPath(destination),
    })),
  };
}

interface StatisticsAbout {
  readonly now: number;
  readonly complaint: string | undefined;
  readonly filter?: EntryFilter | undefined;
  /** Of what the filter matches; undefined without a filter. */
  readonly matching?: Statistics | undefined;
}

interface ListAnswer {
  readonly items: readonly Summary[];
  readonly total: number;
  readonly totalIsLeast?: true | undefined;
  readonly page: number | null;
  readonly limit: number;
  readonly nextCursor: string | null;
  readonly prevCursor: string | null;
  readonly statistics: Statistics;
}

interface ListAbout extends StatisticsAbout {
  readonly filter: EntryFilter;
  readonly sort: string;
  readonly order: string;
  readonly listPath: string;
  readonly controls: readonly RecordedControl[];
  readonly siteOf: (destination: string) => string | undefined;
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

const filterLabels: Readonly<Record<keyof EntryFilter, string>> = {
  q: 'Search',
  state: 'State',
  sender: 'Sender',
  recipient: 'Recipient',
  domain: 'Recipient domain',
  destination: 'Destination',
  reason: 'Reason',
  olderThan: 'Older than',
  youngerThan: 'Younger than',
  since: 'Queued since',
  minAttempts: 'Attempts, at least',
};

/** The filters that apply, each with the address of the list without it. */
function chipsOf(filter: EntryFilter) {
  return (Object.keys(filterLabels) as (keyof EntryFilter)[]).flatMap((key) => {
    const value = filter[key];
    if (value === undefined) return [];
    const others: EntryFilter = Object.fromEntries(Object.entries(filter).filter(([name]) => name !== key));
    const seconds = typeof value === 'number' && key !== 'minAttempts' ? ' s' : '';
    const shown = key === 'state' && filter.state?.length !== 1 ? 'all' : `${String(value)}${seconds}`;
    return [{ label: filterLabels[key], value: shown, href: linkTo(others) }];
  });
}

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
    chips: chipsOf(filter),
    written: entryFilterQuery(filter),
    within: withinOf(filter),
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
      { value: 'desc', label: 'Newest first' },
      { value: 'asc', label: 'Oldest first' },
    ],
  };
}

/** The criteria of recipients: an action on selected entries leaves their other recipients alone. */
function withinOf({ recipient, domain, destination, reason }: EntryFilter): string | null {
  const given = Object.entries({ recipient, domain, destination, reason }).filter(([, value]) => value !== undefined);
  return given.length === 0 ? null : queryOf(Object.fromEntries(given));
}

/** Recipients shown in a row; the others are counted. */
const shownRecipients = 2;

function rowOf(entry: Summary, isSuspended: (destination: string) => boolean) {
  const open = entry.recipients.filter(({ state }) => isOpenState(state));
  const shown = open.length > 0 ? open : entry.recipients;
  const replies = shown.flatMap(({ lastReply }) => lastReply ?? []).sort((a, b) => (a.at < b.at ? 1 : -1));
  return {
    ...entry,
    // The reply to a finished recipient is no reason to wait.
    lastReply: replies[0] ?? (open.length > 0 ? null : entry.lastReply),
    suspended: open.length > 0 && open.every(({ destination }) => isSuspended(destination)),
    href: `/client/queue/${entry.uid}`,
    shown: shown.slice(0, shownRecipients).map(({ address }) => address),
    more: Math.max(0, shown.length - shownRecipients),
  };
}

export function entryPage(entry: Entry, header: readonly (readonly [string, string])[], mayReadMail: boolean) {
  const isStillOpen = isOpenState(entry.state);
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
    openCount: entry.recipients.filter(({ state }) => isOpenState(state)).length,
  };
}

const State = z.enum(entryStates);
const word = z.string().min(1).max(1024);

/** One state, several separated by commas, or `all`. */
const States = z
  .string()
  .max(200)
  .transform((text, context): readonly EntryState[] | undefined => {
    if (text === '') return undefined;
    if (text === 'all') return entryStates;
    const read = z.array(State).min(1).safeParse(text.split(','));
    if (read.success) return read.data;
    context.addIssue({ code: 'custom', message: `must be all, or of ${entryStates.join(', ')}, with commas between` });
    return z.NEVER;
  });

const optional = <T extends z.ZodType>(schema: T) => z.union([z.literal(''), schema]).optional();

const secondsOf: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };
const maxAge = 1e9;

/** Seconds, or a time in ISO 8601. */
const Age = z
  .union([
    z.int().min(0).max(maxAge),
    z
      .string()
      .max(40)
      .transform((text, context): number | string | undefined => {
        if (text === '') return undefined;
        const [, count, unit = 's'] = /^(\d{1,10})([smhd])?$/.exec(text) ?? [];
        const seconds = Number(count) * (secondsOf[unit] ?? 0);
        if (seconds <= maxAge) return seconds;
        const at = parseTime(text);
        if (!Number.isNaN(at)) return new Date(at).toISOString();
        context.addIssue({
          code: 'custom',
          message: 'must be an age such as 15m, 2h or 7d, seconds, or an ISO 8601 time',
        });
        return z.NEVER;
      }),
  ])
  .optional();

/** Filters of a list; empty fields count as absent. */
const filterFields = {
  q: z.string().max(200).optional().describe('Part of uid, sender, recipient, subject, Message-ID or last reply.'),
  state: z
    .union([States, z.array(State).min(1)])
    .optional()
    .describe('The open states if absent.'),
  sender: optional(word).describe('Address, @domain, or <> for the null reverse-path.'),
  recipient: optional(word).describe('Address or @domain.'),
  domain: optional(word).describe('Domain of an open recipient.'),
  destination: optional(word).describe('Next hop of an open recipient: a domain, [literal] or route:NAME.'),
  reason: optional(word).describe('Last reply without what differs from mail to mail, as statistics give it.'),
  olderThan: Age.describe('Queued at least so long ago (15m, 2h, 7d, or seconds), or until that time (ISO 8601).'),
  youngerThan: Age.describe('Queued less than so long ago, or after that time.'),
  since: Age.describe('Queued at most so long ago, or from that time on.'),
  minAttempts: z.int().min(0).max(1e6).optional(),
};
const FilterFields = z.strictObject(filterFields);
type Given = z.output<typeof FilterFields>;

export const StatisticsQuery = z.object(filterFields);

export const QueueListQuery = z.object({
  ...filterFields,
  page: z.int().min(1).max(1e6).optional().describe('From 1; a cursor is better while mail moves.'),
  limit: z.int().min(1).max(1000).default(50),
  cursor: z.string().max(1000).optional(),
  sort: z.enum(entrySorts).default('queuedAt'),
  order: z.enum(['asc', 'desc']).default('desc'),
});

export function filterOf(given: Partial<Given>): EntryFilter {
  const kept = Object.keys(filterFields).flatMap((name) => {
    const value = given[name as keyof Given];
    return value === undefined || value === '' ? [] : [[name, value] as const];
  });
  return Object.fromEntries(kept);
}

/** A filter that selects: never an empty one, which would select everything. */
const ChoosingFilter = FilterFields.extend({
  all: z.literal(true).optional().describe('Every open entry; stands alone.'),
}).transform(({ all, ...given }, context): EntryFilter => {
  const filter = filterOf(given);
  if ((all === true) === (Object.keys(filter).length === 0)) return filter;
  context.addIssue({
    code: 'custom',
    message: all === true ? 'all stands alone' : 'must name a criterion, or all: true',
  });
  return z.NEVER;
});

/** A filter in one form field: the query of the list. */
const WrittenFilter = z
  .string()
  .max(5000)
  .transform((text, context): EntryFilter | undefined => {
    if (text === '') return undefined;
    const fields = [...new URLSearchParams(text)].map(([name, value]): [string, unknown] => [
      name,
      name === 'all' ? value === 'true' : name === 'minAttempts' ? Number(value) : value,
    ]);
    const read = ChoosingFilter.safeParse(Object.fromEntries(fields));
    if (read.success) return read.data;
    context.addIssue({ code: 'custom', message: read.error.issues[0]?.message ?? 'invalid' });
    return z.NEVER;
  });

const RecipientFields = FilterFields.pick({ recipient: true, domain: true, destination: true, reason: true });

/** The criteria of recipients in one form field; others would be ignored. */
const WithinFilter = z
  .string()
  .max(5000)
  .transform((text, context): EntryFilter => {
    const read = RecipientFields.safeParse(Object.fromEntries(new URLSearchParams(text)));
    const filter = filterOf(read.data ?? {});
    if (Object.keys(filter).length > 0) return filter;
    const message = read.error?.issues[0]?.message ?? 'must name a criterion';
    context.addIssue({ code: 'custom', message: `${message}; it takes recipient, domain, destination and reason` });
    return z.NEVER;
  });

const Uid = z.string().regex(/^[A-Za-z0-9-]{1,100}$/, 'must be the uid of an entry');
const maxUids = 10_000;

/** Exactly one of uid, uids and a filter. */
export const entrySelection = {
  uid: Uid.optional(),
  uids: z.array(Uid).min(1).optional().describe(`At most ${maxUids}; one that occurs twice counts once.`),
  filter: z.union([ChoosingFilter, WrittenFilter]).optional().describe("The list's parameters, or all: true."),
  within: WithinFilter.optional().describe(
    'With uid or uids: only recipients that match recipient, domain, destination and reason of this filter.',
  ),
  expect: z.int().min(0).optional().describe('How many must be chosen; another number is 409.'),
  dryRun: z.boolean().optional().describe('Only count, and show some of them.'),
};
export const maxSelected = maxUids;

/** A filter as a query string for links and forms. */
export function entryFilterQuery(filter: EntryFilter): string {
  const given = Object.entries(filter).filter(([, value]) => value !== undefined);
  return given.length === 0 ? 'all=true' : queryOf(Object.fromEntries(given));
}

export const UidParams = z.object({ uid: Uid });

export const isOpenState = (state: string): boolean => (openStates as readonly string[]).includes(state);
