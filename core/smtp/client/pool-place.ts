import { type ClientFailure, localFailure } from './failure.js';
import type { PoolGroup } from './pool-group.js';
import type { ClientSession } from './session.js';

/** Somebody who waits for a connection of his destination. */
export interface Waiter {
  readonly group: PoolGroup;
  readonly most: number;
  readonly proceed: (session: ClientSession | undefined) => void;
  readonly refuse: (failure: ClientFailure) => void;
}

/** A kept connection. */
export interface Idle {
  readonly session: ClientSession;
  readonly group: PoolGroup;
  readonly at: number;
}

/** What the pool knows of one destination; gone with its last connection and waiter. */
export interface Place {
  readonly key: string;
  /** Connections that are leased or being made. */
  busy: number;
  /** The last one given back is the first one used. */
  readonly idle: Idle[];
  readonly waiters: Set<Waiter>;
}

/** Takes out the oldest of the first place that has one that suits. */
export function takeKept(
  places: Iterable<Place>,
  suits: (one: Idle) => boolean,
  taken: (place: Place, one: Idle) => void,
): void {
  for (const place of places) {
    const index = place.idle.findIndex(suits);
    const [oldest] = index < 0 ? [] : place.idle.splice(index, 1);
    if (oldest !== undefined) return taken(place, oldest);
  }
}

export const closedHere = (): ClientFailure => localFailure('connect', 'No more mail is sent');
export const tooMany = (): ClientFailure => localFailure('connect', 'Too many messages wait for a connection');
