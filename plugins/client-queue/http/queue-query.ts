import { z } from 'zod';
import { entryStates, type EntryState } from '../../../core/contracts/queue-entry.js';
import { entrySorts, type EntryFilter } from '../../../core/contracts/queue-list.js';

const State = z.enum(entryStates);
const word = z.string().min(1).max(1024);

/** One state, several with commas, or `all`. */
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
const zoneless = /T[^Z+-]*$/;

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
        const at = /^\d{4}-\d{2}-\d{2}(T|$)/.test(text) ? Date.parse(zoneless.test(text) ? `${text}Z` : text) : NaN;
        if (!Number.isNaN(at)) return new Date(at).toISOString();
        context.addIssue({
          code: 'custom',
          message: 'must be an age such as 15m, 2h or 7d, seconds, or an ISO 8601 time',
        });
        return z.NEVER;
      }),
  ])
  .optional();

/** What a list is filtered by; empty fields count as absent. */
export const filterFields = {
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

export const ListQuery = z.object({
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

/** A filter that chooses: never an empty one, for that would be everything. */
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

/** What a form has in one field: the query of the list. */
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

const Uid = z.string().regex(/^[A-Za-z0-9-]{1,100}$/, 'must be the uid of an entry');
const mostUids = 10_000;

/** Which entries: by uid, uids or a filter, never two of them and never none. */
export const selectionFields = {
  uid: Uid.optional(),
  uids: z.array(Uid).min(1).optional().describe(`At most ${mostUids}; one that occurs twice counts once.`),
  filter: z.union([ChoosingFilter, WrittenFilter]).optional().describe("The list's parameters, or all: true."),
  expect: z.int().min(0).optional().describe('How many must be chosen; another number is 409.'),
  dryRun: z.boolean().optional().describe('Only count, and show some of them.'),
};
export const mostSelected = mostUids;

/** A filter as a link or a form carries it. */
export function writtenFilter(filter: EntryFilter): string {
  const fields = Object.entries(filter).filter(([, value]) => value !== undefined);
  if (fields.length === 0) return 'all=true';
  return new URLSearchParams(fields.map(([name, value]): [string, string] => [name, String(value)])).toString();
}

export const UidParams = z.object({ uid: Uid });
