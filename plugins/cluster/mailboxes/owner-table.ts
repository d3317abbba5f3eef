import type { Cluster, SqlRow, SqlTransaction } from '../../../core/contracts/cluster.js';
import type { Document } from '../../../core/disk/document.js';
import { problem } from '../../../core/problem.js';
import type { CopiedOwners } from '../shared/node-copies.js';
import { changesAfter, nextRevision } from '../shared/revisions.js';

export const ownersTopic = 'mailbox-owners';

/** Who has a mailbox. */
export interface MailboxOwner {
  readonly username: string;
  readonly node: string;
  /** The node to which it moves: until it is there, mail for it is queued. */
  readonly moving: string | null;
}

export interface OwnerRow extends SqlRow, MailboxOwner {
  readonly revision: string;
  /** A node that has still to remove its old copy. */
  readonly leaves: string | null;
  readonly note: string | null;
}

const columns = 'username, revision, node, moving, leaves, note';

interface TableInput {
  readonly cluster: Cluster;
  /** What this node knew when it stopped: it counts while the database is away. */
  readonly copy: Document<CopiedOwners>;
  /** How nodes are reached, kept with the owners. */
  readonly addresses: () => Readonly<Record<string, string>>;
  /**
   * Called before changes of rows are in force here. Never rejects; waits for no use of a mailbox, which may wait for this.
   *
   * @param isAll the rows are all that there are: others that were known are forgotten
   */
  readonly changes: (rows: readonly OwnerRow[], isAll: boolean) => Promise<void>;
}

/**
 * Which node has which mailbox, the same for all nodes. Each has a copy in memory, so that mail is taken while the
 * database is away; changes are made in the database, one after the other, and pulled by their revision.
 */
export class OwnerTable {
  readonly #input: TableInput;
  readonly #owners = new Map<string, MailboxOwner>();
  #revision: number;
  #pulling: Promise<void> = Promise.resolve();

  constructor(input: TableInput) {
    this.#input = input;
    const { owners, revision } = input.copy.data;
    for (const one of owners) this.#owners.set(one.username, one);
    this.#revision = revision;
  }

  find(username: string): MailboxOwner | undefined {
    return this.#owners.get(username);
  }

  ownedBy(node: string): readonly string[] {
    return [...this.#owners.values()].flatMap((owner) => (owner.node === node ? owner.username : []));
  }

  /**
   * The owner of a mailbox, which is chosen now if it has none: the node with the fewest mailboxes.
   *
   * @throws Problem `unavailable` while the database is away
   */
  async assign(username: string): Promise<MailboxOwner> {
    const known = this.#owners.get(username);
    if (known !== undefined) return known;
    const { cluster } = this.#input;
    await cluster.database.transaction('pages', async (sql) => {
      const revision = await nextRevision(sql, 'mailbox-owners');
      const [fewest] = await sql.query<{ node: string }>(
        `select s.node from postern.session s
         where not s.dead and not s.draining and s.report -> 'mailboxes' ->> 'mode' = 'owner'
         order by (select count(*) from postern.mailbox_owner o where coalesce(o.moving, o.node) = s.node), s.node <> $1, s.node
         limit 1`,
        [cluster.node],
      );
      await insert(sql, [username], fewest?.node ?? cluster.node, revision);
    });
    await this.changed();
    const owner = this.#owners.get(username);
    if (owner === undefined) throw problem('unavailable', 'The owner of the mailbox is not known yet.');
    return owner;
  }

  /** Mailboxes that lie here and have no owner become those of this node. */
  async claim(usernames: readonly string[]): Promise<void> {
    const { cluster } = this.#input;
    const unowned = usernames.filter((username) => !this.#owners.has(username));
    if (unowned.length === 0) return;
    await cluster.database.transaction('pages', async (sql) => {
      await insert(sql, unowned, cluster.node, await nextRevision(sql, 'mailbox-owners'));
    });
    await this.changed();
  }

  /** The row as the database has it now. */
  async row(username: string): Promise<OwnerRow | undefined> {
    const [row] = await this.#input.cluster.database.query<OwnerRow>(
      'pages',
      `select ${columns} from postern.mailbox_owner where username = $1`,
      [username],
    );
    return row;
  }

  /** Rows that give this node something to do: mailboxes that it is to move, and old copies that it is to remove. */
  async tasks(): Promise<readonly OwnerRow[]> {
    const { cluster } = this.#input;
    return cluster.database.query<OwnerRow>(
      'pages',
      `select ${columns} from postern.mailbox_owner
       where (node = $1 and moving is not null) or leaves = $1 order by revision`,
      [cluster.node],
    );
  }

  /** Changes a row if it is as it was read. False when it was changed since. */
  async change(
    row: OwnerRow,
    change: Partial<Pick<OwnerRow, 'node' | 'moving' | 'leaves' | 'note'>>,
  ): Promise<boolean> {
    const isDone = await this.#input.cluster.database.transaction('pages', (sql) => changeRow(sql, row, change));
    await this.changed();
    return isDone;
  }

  /** The change is in force here when this resolves, and soon everywhere. */
  async changed(): Promise<void> {
    this.#input.cluster.ring(ownersTopic, []);
    await this.pull();
  }

  /** Reads what has changed since the last time. Also called at intervals. */
  pull(): Promise<void> {
    const pulled = this.#pulling.then(() => this.#pull());
    this.#pulling = pulled.catch(() => undefined);
    return pulled;
  }

  async #pull(): Promise<void> {
    const { database } = this.#input.cluster;
    const { rows, isAll, revision } = await changesAfter<OwnerRow>(database, 'mailbox-owners', columns, this.#revision);
    if (isAll || rows.length > 0) await this.#input.changes(rows, isAll);
    if (isAll) this.#owners.clear();
    for (const { username, node, moving } of rows) this.#owners.set(username, { username, node, moving });
    this.#revision = revision;
  }

  /** Keeps what is known for the next start. Called at intervals, and at the end. */
  async save(): Promise<void> {
    const { copy } = this.#input;
    const [revision, addresses] = [this.#revision, this.#input.addresses()];
    const isSame = JSON.stringify(copy.data.addresses) === JSON.stringify(addresses);
    if (isSame && copy.data.revision === revision) return;
    await copy.update(() => ({ revision, owners: [...this.#owners.values()], addresses: { ...addresses } }));
  }
}

async function insert(
  sql: SqlTransaction,
  usernames: readonly string[],
  node: string,
  revision: string,
): Promise<void> {
  await sql.query(
    `insert into postern.mailbox_owner (username, node, revision)
     select unnest($1::text[]), $2, $3 on conflict (username) do nothing`,
    [usernames, node, revision],
  );
}

async function changeRow(sql: SqlTransaction, row: OwnerRow, change: Partial<OwnerRow>): Promise<boolean> {
  const revision = await nextRevision(sql, 'mailbox-owners');
  const { node, moving, leaves, note } = { ...row, ...change };
  const changed = await sql.query(
    `update postern.mailbox_owner set revision = $3, node = $4, moving = $5, leaves = $6, note = $7
     where username = $1 and revision = $2 returning username`,
    [row.username, row.revision, revision, node, moving, leaves, note],
  );
  return changed.length === 1;
}
