import { groupedBy } from '../../plugins/client-queue/postgres/entry-rows.js';
import type { Sent } from './mail-client.js';
import type { RecipientEnd, RecipientLease } from './queue-tables.js';

/** A message that has arrived at the sink for one of its recipients, dot included. */
export interface MailArrival {
  readonly id: string;
  readonly address: string;
  readonly node: string;
  /** Milliseconds since 1970. */
  readonly at: number;
  /** The body is the one that was handed in. */
  readonly whole: boolean;
}

interface MailEvidence extends Sent {
  readonly arrivals: readonly MailArrival[];
  readonly leases: readonly RecipientLease[];
  readonly ends: readonly RecipientEnd[];
}

export interface MailVerdict {
  readonly accepted: number;
  readonly delivered: number;
  /** Recipients that are still in the queue; those of them that are held. */
  readonly waiting: number;
  readonly held: number;
  /** Neither arrived nor in the queue nor, at `gone.example`, bounced. */
  readonly lost: readonly string[];
  readonly damaged: readonly MailArrival[];
  /** Arrived from a node that had no lease of a living session at that time. */
  readonly sentAfter: readonly MailArrival[];
  readonly duplicates: number;
  /** Neither behind a lost lease without an outcome nor of a message that was handed in again without a 250. */
  readonly unexplained: readonly MailArrival[];
  readonly lostLeases: number;
}

/** Between the dot and its time at the sink. */
const toleranceMs = 150;
const held = 3;
const inQueue: readonly number[] = [0, 1, 2, held];
const bounced: readonly number[] = [4, 5];

export function judgeMail({ accepted, unanswered, arrivals, leases, ends }: MailEvidence): MailVerdict {
  const keyOf = (one: { readonly id: string; readonly address: string }): string => `${one.id} ${one.address}`;
  const idOf = new Map(ends.map(({ uid, id }) => [uid, id]));
  const leasesOf = groupedBy(leases, ({ uid, address }) => keyOf({ id: idOf.get(uid) ?? '', address }));
  const endsOf = groupedBy(ends, keyOf);
  const arrivalsOf = groupedBy(
    arrivals.filter(({ id }) => accepted.has(id) || unanswered.has(id)).toSorted((one, other) => one.at - other.at),
    keyOf,
  );
  const leaseOf = (arrival: MailArrival): RecipientLease | undefined => {
    const { node, at } = arrival;
    const those = leasesOf.get(keyOf(arrival))?.filter(({ session, begun, ended }) => {
      return session.startsWith(`${node}:`) && begun <= at && at <= (ended ?? Infinity) + toleranceMs;
    });
    return those?.at(-1);
  };
  const lost: string[] = [];
  for (const [id, recipients] of accepted) {
    for (const key of recipients.map((address) => keyOf({ id, address }))) {
      const fine = key.endsWith('@gone.example') ? [...inQueue, ...bounced] : inQueue;
      const isThere = endsOf.get(key)?.some(({ state }) => fine.includes(state));
      if (!arrivalsOf.has(key) && isThere !== true) lost.push(key);
    }
  }
  const unexplained: MailArrival[] = [];
  let duplicates = 0;
  for (const those of arrivalsOf.values()) {
    duplicates += those.length - 1;
    for (const [nth, copy] of those.entries()) {
      const before = those[nth - 1];
      if (before === undefined) continue;
      const [first, second] = [leaseOf(before), leaseOf(copy)];
      if (first === undefined || first.lost || first.ended === null) continue;
      const isOther = second !== undefined && second.uid !== first.uid && (unanswered.get(copy.id) ?? 0) > 0;
      if (!isOther) unexplained.push(copy);
    }
  }
  const ours = ends.filter(({ id }) => accepted.has(id));
  return {
    accepted: accepted.size,
    delivered: [...arrivalsOf.keys()].length,
    waiting: ours.filter(({ state }) => inQueue.includes(state)).length,
    held: ours.filter(({ state }) => state === held).length,
    lost,
    damaged: arrivals.filter(({ id, whole }) => (accepted.has(id) || unanswered.has(id)) && !whole),
    sentAfter: [...arrivalsOf.values()].flat().filter((arrival) => leaseOf(arrival) === undefined),
    duplicates,
    unexplained,
    lostLeases: leases.filter((one) => one.lost).length,
  };
}
