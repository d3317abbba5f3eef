import { type EntryState, openStates } from '../../../core/contracts/queue-entry.js';
import type { EntryFilter } from '../../../core/contracts/relay-queue.js';
import { statesOf } from '../queue/entry-list.js';
import { numberOf, searchable } from './entry-rows.js';

/** Numbers values as it goes: no value is ever part of a statement. */
export class Values {
  readonly all: unknown[] = [];

  /** The place of the value in the statement. */
  add(value: unknown): string {
    this.all.push(value);
    return `$${this.all.length}`;
  }
}

/**
 * Open recipients, case by case: each case has an index that holds only its rows, so that mail that leaves at once is in
 * few of them.
 */
const openCases = [
  'r.state in (1, 2) and r.lane = 0',
  'r.state in (1, 2) and r.lane = 1',
  'r.state in (1, 2) and r.lane = 2',
  'r.session is not null and r.state <= 3',
  'r.state = 3',
];
const isOpen = `(${openCases.join(' or ')})`;
/** All cases. */
const isAny = `(${[...openCases, 'r.state > 3'].join(' or ')})`;

/** Pattern of a text that may be anywhere in another one. */
const anywhere = (text: string): string => `%${literal(text)}%`;
const literal = (text: string): string => searchable(text).replaceAll(/[\\%_]/g, String.raw`\$&`);

/** A condition on the table `e` of entries. */
export function conditionOf(filter: EntryFilter, now: number, values: Values): string {
  const tests = [stateTest(statesOf(filter), values)];
  const momentOf = (age: number | string): number =>
    Math.floor(typeof age === 'number' ? now - age * 1000 : Date.parse(age));
  const { olderThan, youngerThan, since, minAttempts = 0, sender, q } = filter;
  if (olderThan !== undefined) tests.push(`e.queued_at <= ${values.add(momentOf(olderThan))}`);
  if (youngerThan !== undefined) tests.push(`e.queued_at > ${values.add(momentOf(youngerThan))}`);
  if (since !== undefined) tests.push(`e.queued_at >= ${values.add(momentOf(since))}`);
  if (minAttempts > 0) tests.push(someRecipient(`r.attempts >= ${values.add(Math.ceil(minAttempts))}`));
  if (sender === '<>') tests.push('e.sender is null');
  else if (sender !== undefined) tests.push(addressTest('e.sender', sender, values));
  const recipients = recipientConditionOf(filter, values);
  if (recipients !== undefined) tests.push(someRecipient(recipients));
  if (q !== undefined && q !== '') tests.push(wordTest(q, values));
  return tests.join(' and ');
}

const someRecipient = (test: string): string =>
  `exists (select 1 from postern.recipient r where r.uid = e.uid and ${test})`;

const isOpenState = (state: EntryState): boolean => (openStates as readonly string[]).includes(state);

/** The filter matches no finished entries. */
export const isOfOpen = (filter: EntryFilter): boolean => [...statesOf(filter)].every(isOpenState);

function stateTest(states: ReadonlySet<EntryState>, values: Values): string {
  const all = [...states];
  const isFinished = all.some((state) => !isOpenState(state));
  const isEveryOpen = openStates.every((state) => states.has(state));
  if (isEveryOpen && !isFinished) return 'e.finished_at is null';
  const numbers = values.add(all.map(numberOf));
  const own = `(select min(r.state) from postern.recipient r where r.uid = e.uid) = any(${numbers}::smallint[])`;
  if (isFinished) return all.some(isOpenState) ? own : `e.finished_at is not null and ${own}`;
  // The second test finds them, the third leaves out those whose other recipients decide.
  const some = someRecipient(`${isOpen} and r.state = any(${numbers}::smallint[])`);
  return `e.finished_at is null and ${states.has('deferred') ? '' : `${some} and `}${own}`;
}

/** Whether an address, or with `@` in front its domain, is the wanted one: they are indexed from their end. */
function addressTest(column: string, wanted: string, values: Values): string {
  const reversed = `reverse(lower(${column})) collate "C"`;
  const lower = searchable(wanted.toLowerCase());
  const backwards = Array.from(lower).toReversed().join('');
  if (!lower.startsWith('@')) return `${reversed} = ${values.add(backwards)}`;
  return `${reversed} like ${values.add(`${literal(backwards)}%`)}`;
}

/**
 * Criteria of recipients on the table `r`, which must all match the same one; but for an address, an open one, unless all
 * are finished. Undefined without any.
 */
export function recipientConditionOf(filter: EntryFilter, values: Values): string | undefined {
  const { domain, destination, reason, recipient } = filter;
  const tests: string[] = [];
  if (destination !== undefined) tests.push(`r.destination = ${values.add(searchable(destination.toLowerCase()))}`);
  if (domain !== undefined) tests.push(addressTest('r.address', `@${domain}`, values));
  if (reason !== undefined) tests.push(`lower(r.reason) = ${values.add(searchable(reason.toLowerCase()))}`);
  if (reason !== undefined && reason !== '') tests.push("r.reason <> ''");
  if (tests.length > 0)
    tests.push(isOfOpen(filter) ? isOpen : `(e.finished_at is not null or r.state <= ${numberOf('held')})`);
  if (recipient !== undefined) tests.push(addressTest('r.address', recipient, values), isAny);
  return tests.length === 0 ? undefined : tests.join(' and ');
}

function wordTest(q: string, values: Values): string {
  const word = values.add(anywhere(q));
  const said = /^\d/.test(q) ? "concat_ws(' ', r.code, r.status, r.reply)" : 'r.reply';
  const inEntry = ['e.uid', 'e.sender', 'e.subject', 'e.message_id'].map((column) => `${column} ilike ${word}`);
  return `(${inEntry.join(' or ')} or ${someRecipient(`(r.address ilike ${word} or ${said} ilike ${word})`)})`;
}
