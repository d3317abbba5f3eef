/** A message that has arrived at the sink, dot included. */
export interface Arrival {
  readonly id: string;
  readonly node: string;
  readonly token: string;
  /** Milliseconds since 1970, with fractions. */
  readonly at: number;
}

/** What the database did with a lease. */
export interface LeaseChange {
  readonly id: string;
  readonly token: string;
  readonly change: 'begun' | 'lost' | 'settled';
  /** Milliseconds since 1970, with fractions, by the same clock. */
  readonly at: number;
}

export interface Evidence {
  /** Messages that were put in. */
  readonly ids: readonly string[];
  /** Those of them that the queue still has. */
  readonly waiting: ReadonlySet<string>;
  readonly arrivals: readonly Arrival[];
  readonly leases: readonly LeaseChange[];
}

export interface Verdict {
  readonly delivered: number;
  readonly waiting: number;
  /** Neither delivered nor waiting. */
  readonly lost: readonly string[];
  /** Arrived without a lease, or after the database had taken it away: what the fence is to prevent. */
  readonly sentAfter: readonly Arrival[];
  /** Arrivals beyond the first one of a message. */
  readonly duplicates: number;
  /** Duplicates in front of which no lease was lost before its outcome was committed. */
  readonly unexplained: readonly Arrival[];
  readonly lostLeases: number;
}

export function judge({ ids, waiting, arrivals, leases }: Evidence): Verdict {
  const begun = new Set<string>();
  const endedAt = new Map<string, number>();
  const lostTokens = new Set<string>();
  for (const { token, change, at } of leases) {
    if (change === 'begun') begun.add(token);
    if (change === 'lost') lostTokens.add(token);
    if (change === 'lost' || change === 'settled') endedAt.set(token, at);
  }
  const lastOf = new Map<string, Arrival>();
  const again: { readonly copy: Arrival; readonly before: Arrival }[] = [];
  for (const copy of arrivals.toSorted((one, other) => one.at - other.at)) {
    const before = lastOf.get(copy.id);
    if (before !== undefined) again.push({ copy, before });
    lastOf.set(copy.id, copy);
  }
  return {
    delivered: lastOf.size,
    waiting: waiting.size,
    lost: ids.filter((id) => !lastOf.has(id) && !waiting.has(id)),
    sentAfter: arrivals.filter(({ token, at }) => !begun.has(token) || at > (endedAt.get(token) ?? Infinity)),
    duplicates: again.length,
    unexplained: again.filter(({ before }) => !lostTokens.has(before.token)).map(({ copy }) => copy),
    lostLeases: lostTokens.size,
  };
}
