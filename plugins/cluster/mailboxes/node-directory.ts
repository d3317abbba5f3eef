import type { Cluster, SqlRow } from '../../../core/contracts/cluster.js';
import type { HealthReport } from '../../../core/contracts/health.js';
import { type Ask, askFor, type MailboxReport } from '../database/server-state.js';

export interface LivingNode {
  readonly node: string;
  readonly mailboxes?: MailboxReport | undefined;
}

export const livingNodes = (ask: Ask): Promise<readonly LivingNode[]> =>
  ask<LivingNode & SqlRow>(
    `select distinct on (node) node, report -> 'mailboxes' as mailboxes
     from postern.session where not dead order by node, joined_at desc`,
  );

/** The nodes that live, and where they are reached. */
export class NodeDirectory {
  readonly #cluster: Cluster;
  readonly #addresses: Map<string, string>;
  readonly #pages = new Map<string, string>();
  #living: readonly LivingNode[] = [];

  /** @param addresses known from before */
  constructor(cluster: Cluster, addresses: Readonly<Record<string, string>>) {
    this.#cluster = cluster;
    this.#addresses = new Map(Object.entries(addresses));
  }

  get living(): readonly LivingNode[] {
    return this.#living;
  }

  /** Also of a node that is dead by now: it may only have lost the database. */
  get addresses(): Readonly<Record<string, string>> {
    return Object.fromEntries(this.#addresses);
  }

  /** Looks for a node that has just joined. */
  async addressOf(node: string): Promise<string | undefined> {
    if (!this.#addresses.has(node)) await this.look().catch(() => undefined);
    return this.#addresses.get(node);
  }

  pagesOf(node: string): string | undefined {
    return this.#pages.get(node);
  }

  /** Called at intervals. */
  async look(): Promise<void> {
    this.#living = await livingNodes(askFor(this.#cluster.database));
    for (const { node, mailboxes } of this.#living) {
      if (mailboxes?.address !== undefined) this.#addresses.set(node, mailboxes.address);
      const [pages] = mailboxes?.pages ?? [];
      if (pages !== undefined) this.#pages.set(node, pages);
    }
  }
}

/** Why mail of one user may lie on several nodes; undefined when it does not. */
export function dividedMail(living: readonly LivingNode[]): string | undefined {
  const taking = living.filter(({ mailboxes }) => mailboxes?.takesMail === true);
  const here = taking.filter(({ mailboxes }) => mailboxes?.mode === 'here').map(({ node }) => node);
  const modes = new Set(taking.map(({ mailboxes }) => mailboxes?.mode));
  if (here.length > 1)
    return `${here.join(', ')} each keep the mailboxes of the same users (plugins.cluster.mailboxes is here): mail of one user lies on several nodes. Set it to owner, elsewhere or shared-disk.`;
  if (modes.size > 1) {
    const told = taking.map(({ node, mailboxes }) => `${node} ${mailboxes?.mode}`);
    return `The nodes have different values of plugins.cluster.mailboxes (${told.join(', ')}): mail of one user may lie on several nodes.`;
  }
  return undefined;
}

export function mailboxHealth(living: readonly LivingNode[], page: string): HealthReport {
  const why = dividedMail(living);
  return why === undefined ? { status: 'up' } : { status: 'degraded', why, page };
}
