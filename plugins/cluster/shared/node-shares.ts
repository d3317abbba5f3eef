import type { Clock } from '../../../core/clock.js';
import { KeyedMutex } from '../../../core/concurrency.js';
import type { Cluster, PaceLimits, SiteShares, SqlTransaction } from '../../../core/contracts/cluster.js';

const topic = 'share';
/** Parts of a limit on the rate alone. */
const partsOfRate = 100;
/** Requests are gathered so long. Milliseconds. */
const gatherMs = 20;
/** A share that is used by less than half for so long is halved; one that is not used is given back. Milliseconds. */
const halvedAfterMs = 10_000;
/** Mail that waits while nothing runs is reported more often than this. Milliseconds. */
const reportedWithinMs = 10_000;
const askAgainMs = 1000;

interface Share {
  limits: PaceLimits;
  /** Units of the limit when it was divided last. */
  units: number;
  /** What the database says is of this node. */
  granted: number;
  /** What it may use: less, while it gives something back. */
  allowed: number;
  running: number;
  waiting: boolean;
  /** Since when less than half is used, and since when no more than is allowed, by the monotonic clock. */
  lowSince: number;
  fitsSince: number;
  idleMs: number;
  usedAt: number;
  askedAt: number;
}

/** Limits of sites, divided among the nodes: who has work gets what is free, and the others give down to their part. */
export class NodeShares implements SiteShares {
  readonly #cluster: Cluster;
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #shares = new Map<string, Share>();
  readonly #listeners = new Set<(site: string) => void>();
  readonly #asking = new Set<string>();
  /** By site: what one transaction brings is known before the next one begins. */
  readonly #turns = new KeyedMutex();

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
    this.#clock = cluster.clock;
    cluster.onSession(() => this.#forget());
    cluster.onRing(topic, (names) => {
      for (const site of names ?? this.#shares.keys()) this.#hear(site);
    });
  }

  of(site: string, limits: PaceLimits): PaceLimits {
    const units = unitsOf(limits);
    const allowed = Math.min(units, this.#shares.get(site)?.allowed ?? 0);
    const { maxConnections, ratePerMinute, suspended } = limits;
    return {
      maxConnections: Number.isFinite(maxConnections) ? allowed : allowed === 0 ? 0 : Infinity,
      ratePerMinute: ratePerMinute === undefined ? undefined : (ratePerMinute * allowed) / Math.max(1, units),
      suspended,
    };
  }

  use(site: string, limits: PaceLimits, use: { running: number; waiting: boolean; idleMs: number }): void {
    const now = this.#clock.monotonic();
    const share = this.#shares.get(site);
    if (share === undefined) {
      if (!use.waiting) return;
      this.#shares.set(site, {
        limits,
        units: unitsOf(limits),
        granted: 0,
        allowed: 0,
        lowSince: now,
        fitsSince: now,
        usedAt: now,
        askedAt: -Infinity,
        ...use,
      });
      this.#ask(site);
      return;
    }
    if (use.running * 2 >= share.allowed) share.lowSince = now;
    if (runsMore(share)) share.fitsSince = now;
    Object.assign(share, use, { limits, usedAt: now });
    const units = unitsOf(limits);
    const isLowered = units < share.units;
    if (((use.waiting && share.allowed < units) || isLowered) && now - share.askedAt >= askAgainMs) this.#ask(site);
  }

  onChange(listener: (site: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Gives back what is not used. Called every second. */
  async look(): Promise<void> {
    const now = this.#clock.monotonic();
    for (const [site, share] of this.#shares) {
      const before = share.allowed;
      if (this.#cluster.draining) {
        share.waiting = false;
        if (share.running < share.allowed) Object.assign(share, { allowed: share.running, fitsSince: now });
      }
      // Another node has taken the mail, or it is gone.
      if (share.running === 0 && now - share.usedAt >= reportedWithinMs) share.waiting = false;
      if (share.waiting && share.granted === 0 && now - share.askedAt >= askAgainMs) this.#ask(site);
      if (share.running * 2 < share.allowed && now - share.lowSince >= halvedAfterMs) {
        share.allowed = share.running === 0 ? 0 : Math.ceil(share.allowed / 2);
        share.lowSince = now;
        share.fitsSince = now;
      }
      if (share.allowed < before) this.#tell(site);
      if (this.#hasSpare(share)) await this.#turns.run(site, () => this.#giveBack(site));
    }
  }

  #hasSpare(share: Share): boolean {
    const { granted, allowed, running, waiting, fitsSince, idleMs } = share;
    const isUnwanted = granted === 0 && running === 0 && !waiting;
    // Connections stay open without work for so long.
    return (allowed < granted || isUnwanted) && !runsMore(share) && this.#clock.monotonic() - fitsSince >= idleMs;
  }

  #hear(site: string): void {
    const share = this.#shares.get(site);
    if (share !== undefined) this.#ask(site);
  }

  #ask(site: string): void {
    this.#asking.add(site);
    if (this.#asking.size === 1) setTimeout(() => void this.#askAll(), gatherMs).unref();
  }

  async #askAll(): Promise<void> {
    const sites = [...this.#asking];
    this.#asking.clear();
    for (const site of sites) {
      // It is asked again by the next use, or the next look.
      await this.#turns.run(site, () => this.#settle(site)).catch(() => undefined);
    }
  }

  /**
   * Takes what is free, and says that it wants more; gives down to its part when another one wants, or when the limit was
   * lowered.
   */
  async #settle(site: string): Promise<void> {
    const share = this.#shares.get(site);
    const { session, database } = this.#cluster;
    if (share === undefined || session === undefined) return;
    share.askedAt = this.#clock.monotonic();
    const units = unitsOf(share.limits);
    const wants = share.waiting;
    const outcome = await database.transaction('claim', async (sql) => {
      const rows = await lockedShares(sql, site);
      const own = rows.find((row) => row.session === session)?.connections ?? 0;
      const others = rows.filter((row) => row.session !== session);
      const free = units - own - others.reduce((sum, { connections }) => sum + connections, 0);
      const granted = wants ? own + Math.max(0, free) : own;
      const isShort = wants && granted < units;
      await sql.query(
        `insert into postern.share (site, session, connections, wants) values ($1, $2, $3, $4)
         on conflict (site, session) do update set connections = excluded.connections, wants = excluded.wants`,
        [site, session, granted, isShort],
      );
      const nodes = others.length + 1;
      const part = Math.floor(units / nodes);
      // Nodes have more than a limit that was lowered: the first ones get what the parts leave.
      const place = others.filter((row) => row.session < session).length;
      const most = free < 0 ? part + (place < units % nodes ? 1 : 0) : Math.max(1, part);
      const givesDown = free < 0 || others.some((row) => row.wants);
      return { granted, allowed: givesDown ? Math.min(granted, most) : granted, isShort };
    });
    if (this.#cluster.session !== session) return;
    const before = share.allowed;
    if (outcome.allowed < share.allowed) share.fitsSince = this.#clock.monotonic();
    // What it was about to give back it does not take again because another one asks for it.
    const allowed = wants ? outcome.allowed : Math.min(share.allowed, outcome.allowed);
    Object.assign(share, { units, granted: outcome.granted, allowed });
    if (outcome.isShort && outcome.granted < Math.ceil(units / 2)) this.#cluster.ring(topic, [site]);
    if (before !== share.allowed) this.#tell(site);
  }

  async #giveBack(site: string): Promise<void> {
    const share = this.#shares.get(site);
    const { session, database } = this.#cluster;
    // While it waited for its turn it may have been given more.
    if (share === undefined || session === undefined || !this.#hasSpare(share)) return;
    const { allowed } = share;
    await database.transaction('claim', async (sql) => {
      await lockedShares(sql, site);
      if (allowed === 0) await sql.query('delete from postern.share where site = $1 and session = $2', [site, session]);
      else
        await sql.query('update postern.share set connections = $3 where site = $1 and session = $2', [
          site,
          session,
          allowed,
        ]);
    });
    if (this.#cluster.session !== session) return;
    share.granted = allowed;
    if (allowed === 0 && !share.waiting) this.#shares.delete(site);
    this.#cluster.ring(topic, [site]);
  }

  /** A session has ended: its shares are void. */
  #forget(): void {
    const sites = [...this.#shares.keys()];
    this.#shares.clear();
    for (const site of sites) this.#tell(site);
  }

  #tell(site: string): void {
    for (const listener of this.#listeners) listener(site);
  }
}

const unitsOf = ({ maxConnections }: PaceLimits): number =>
  Number.isFinite(maxConnections) ? maxConnections : partsOfRate;

/** More than is allowed; of a rate, a part does not limit what runs. */
const runsMore = ({ limits, running, allowed }: Share): boolean =>
  Number.isFinite(limits.maxConnections) && running > allowed;

interface ShareRow extends Readonly<Record<string, unknown>> {
  readonly session: string;
  readonly connections: number;
  readonly wants: boolean;
}

/** The shares of living sessions; no other transaction changes them before this one ends. */
async function lockedShares(sql: SqlTransaction, site: string): Promise<readonly ShareRow[]> {
  await sql.query('select pg_advisory_xact_lock(hashtextextended($1, 1))', [`postern.site.${site}`]);
  await sql.query(
    'delete from postern.share h using postern.session s where h.site = $1 and s.key = h.session and s.dead',
    [site],
  );
  return sql.query<ShareRow>('select session, connections, wants from postern.share where site = $1', [site]);
}
