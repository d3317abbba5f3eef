import { setTimeout as pause } from 'node:timers/promises';
import { type Clock, systemClock } from '../../../../core/clock.js';
import { type ClientDeadlines, standardDeadlines } from '../../../../core/smtp/client/remote-server.js';
import type { FoundHops, HopFinder, HopSearch } from '../../../../core/dns/next-hop.js';
import { type BadPeers, type PeerKind, type PeerPlace, startBadPeers } from '../../../support/bad-peers.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { undisturbedMs } from '../../../support/undisturbed-time.js';
import { outboundFixture, type OutboundFixture } from '../outbound-fixture.js';

export interface CourseOptions {
  readonly kinds: readonly PeerKind[];
  /** Bad domains of each kind. */
  readonly each: number;
  /** Messages to each bad domain. */
  readonly bad: number;
  /** The client's deadlines are divided by it. */
  readonly haste: number;
}

/** The time of day can be put forward; everything else takes its time. */
class ForwardDay implements Clock {
  #aheadMs = 0;

  now(): number {
    return systemClock.now() + this.#aheadMs;
  }

  monotonic(): number {
    return systemClock.monotonic();
  }

  advance(ms: number): void {
    this.#aheadMs += ms;
  }
}

/** Messages that are queued for later are due then. */
const laterMs = 3_600_000;

export interface Course {
  readonly peers: BadPeers;
  readonly fixture: OutboundFixture;
  /** What is queued from now on is due when that is called again. */
  readonly later: () => Promise<void>;
  /** Queues so many messages for a domain of a good server. */
  readonly feed: (messages: number) => Promise<void>;
  /** Queues messages for all bad domains. */
  readonly burden: (messages: number) => Promise<void>;
}

const text = 'a line of a message of some bytes\r\n'.repeat(30);

/** A worker beside good and bad servers. */
export async function openCourse(t: Ending, { kinds, each, haste }: Omit<CourseOptions, 'bad'>): Promise<Course> {
  const peers = await startBadPeers(t, { kinds, each });
  const clock = new ForwardDay();
  let isLater = false;
  const fixture = await outboundFixture(t, {
    finder: finderOf(peers, haste),
    deadlines: divided(haste),
    clock,
    // Most of what is in memory, otherwise.
    keepFinishedMs: 5000,
    options: { port: peers.port, tls: 'opportunistic' },
  });
  const enqueue = async (places: readonly PeerPlace[], messages: number): Promise<void> => {
    const domains = Array.from({ length: messages }, () => places.map(({ domain }) => domain)).flat();
    let at = 0;
    const lane = async (): Promise<void> => {
      for (let domain = domains[at++]; domain !== undefined; domain = domains[at++]) {
        const nextAttempt = clock.now() + (isLater ? laterMs : 0);
        await fixture.enqueue({ to: [`user@${domain}`], text, entry: { nextAttempt } });
      }
    };
    await Promise.all(Array.from({ length: 50 }, lane));
  };
  const feed = (count: number): Promise<void> => enqueue(peers.good, count);
  const later = async (): Promise<void> => {
    isLater = !isLater;
    if (isLater) return;
    clock.advance(laterMs);
    // It wakes the worker.
    await feed(1);
  };
  return { peers, fixture, later, feed, burden: (count) => enqueue(peers.bad, count) };
}

/**
 * Messages a second that a good server, to which mail went before, gets until it has so many, or that time has passed.
 * Bad ones get theirs from the same moment on.
 */
export async function goodRate(
  t: Ending,
  options: CourseOptions & { readonly good: number; readonly limitMs: number },
): Promise<{ readonly rate: number; readonly open: number }> {
  const { ending, release } = ownEnding(t);
  const { peers, fixture, later, feed, burden } = await openCourse(ending, options);
  await fixture.outbound.start();
  await feed(20);
  while (peers.arrived() < 20) await pause(5);
  await later();
  await burden(options.bad);
  await feed(options.good);
  const before = peers.arrived();
  const started = undisturbedMs();
  await later();
  let open = 0;
  while (peers.arrived() - before < options.good && undisturbedMs() - started < options.limitMs) {
    await pause(5);
    open = Math.max(open, peers.open());
  }
  const rate = ((peers.arrived() - before) * 1000) / (undisturbedMs() - started);
  await release();
  return { rate, open };
}

/** What one course holds, released before the test ends. */
export function ownEnding(t: Ending): { readonly ending: Ending; readonly release: () => Promise<void> } {
  const releases: (() => void | Promise<void>)[] = [];
  const release = async (): Promise<void> => {
    for (let next = releases.pop(); next !== undefined; next = releases.pop()) await next();
  };
  atEnd(t, release);
  return { ending: { after: (one) => void releases.push(one) }, release };
}

function divided(haste: number): Partial<ClientDeadlines> {
  // Those that the worker uses where a test says nothing.
  const real = { ...standardDeadlines, attemptMs: 30 * 60_000 };
  return Object.fromEntries(Object.entries(real).map(([name, ms]) => [name, ms / haste]));
}

function finderOf({ good, bad }: BadPeers, haste: number): HopFinder {
  const places = new Map([...good, ...bad].map((place) => [place.domain, place]));
  const found = (place: PeerPlace | undefined): FoundHops => {
    const { domain = '', address = '', kind } = place ?? {};
    return {
      outcome: 'found',
      site: domain,
      hops: [{ host: `mx.${domain}`, address, preference: 0 }],
      ...(kind === 'wrong certificate' && { mustVerify: true }),
    };
  };
  return {
    forHosts: () => Promise.reject(new Error('no route has servers here')),
    forDomain: async (domain): Promise<HopSearch> => {
      const place = places.get(domain);
      if (place?.kind !== 'no DNS') return found(place);
      await pause(60_000 / haste, undefined, { ref: false });
      const text = 'The name servers do not answer';
      return { outcome: 'failed', reason: 'dns', code: 451, status: '4.4.3', text, permanent: false };
    },
  };
}
