import type { MailboxOwners, MailboxPlace } from '../../../core/contracts/mailbox-owners.js';
import type { LocalDelivery } from '../../../core/contracts/local-delivery.js';
import { targets } from '../../../core/contracts/targets.js';
import type { Document } from '../../../core/disk/document.js';
import type { PluginContext } from '../../../core/plugin.js';
import type { CopiedOwners } from '../shared/node-copies.js';
import type { ClusterNode } from '../node.js';
import { MailboxMoves } from './mailbox-moves.js';
import type { NodeDirectory } from './node-directory.js';
import { OwnedMailboxes } from './owned-mailboxes.js';
import { OwnerTable, ownersTopic } from './owner-table.js';
import { PeerLink } from './peer-link.js';
import type { PeerListener } from './peer-listener.js';
import type { PeerTls } from './peer-tls.js';

interface ProvideInput {
  readonly node: ClusterNode;
  readonly nodes: NodeDirectory;
  readonly tls: PeerTls;
  readonly listener: PeerListener;
  readonly copy: Document<CopiedOwners>;
  readonly local: Pick<LocalDelivery, 'deliver'>;
}

/** Other changes than those that were rung are found within this time. Seconds. */
const lookSeconds = 2;
const saveSeconds = 30;
const strangersSeconds = 600;
const lateMs = 3000;

/** Each mailbox on one node: the table of owners, the way to other nodes, and moves. */
export function provideMailboxes(
  { every, health, log, onClose }: PluginContext,
  { node, nodes, tls, listener, copy, local }: ProvideInput,
): { readonly owners: MailboxOwners; readonly assign: (username: string) => Promise<unknown> } {
  let [isHurrying, isAskedAgain] = [false, false];
  const hurry = (): void => {
    if (isHurrying) {
      isAskedAgain = true;
      return;
    }
    [isHurrying, isAskedAgain] = [true, false];
    const again = (): void => void hurryMail(node).catch(() => undefined);
    again();
    // What was queued at this moment.
    const late = (): void => {
      isHurrying = false;
      if (isAskedAgain) hurry();
      else again();
    };
    setTimeout(late, lateMs).unref();
  };
  const table = new OwnerTable({
    cluster: node,
    copy,
    addresses: () => nodes.addresses,
    changes: async (rows, isAll) => {
      if (isAll) isClaimed = false;
      const own = rows.filter((row) => row.node === node.node);
      await moves.install(own.map(({ username }) => username));
      if (own.some(({ moving }) => moving === null)) hurry();
    },
  });
  const link = new PeerLink({ tls, addressOf: (name) => nodes.addressOf(name), returned: hurry, log });
  const strangers = new StrangeMailboxes(table, node.node);
  const owners: OwnedMailboxes = new OwnedMailboxes({ node: node.node, table, nodes, link, log, opened });
  const moves: MailboxMoves = new MailboxMoves({ node: node.node, table, link, log, mailboxes: owners });

  let isClaimed = false;
  async function claim(place: MailboxPlace): Promise<void> {
    isClaimed = true;
    try {
      await table.claim(await withMessages(place, (username) => table.find(username) === undefined));
    } catch (error) {
      isClaimed = false;
      throw error;
    }
  }

  /** Not waited for: it takes as long as a mailbox is large. */
  function move(): void {
    moves.run().catch((error: unknown) => log.error({ err: error }, 'mailboxes cannot be moved'));
  }

  async function opened(place: MailboxPlace): Promise<void> {
    const isKnown = await table.pull().then(
      () => true,
      () => false,
    );
    await moves.open(place, isKnown);
    if (isKnown) await claim(place);
    await strangers.look(place);
    await table.save().catch((error: unknown) => log.error({ err: error }, 'the owners of mailboxes cannot be kept'));
    await listener.start({ local, receive: (input) => moves.receive(input) });
    every(lookSeconds, async () => {
      if (node.fault !== undefined || node.session === undefined) return;
      await table.pull();
      if (!isClaimed) await claim(place);
      move();
    });
    every(strangersSeconds, () => strangers.look(place));
    every(saveSeconds, () => table.save());
    hurry();
  }

  node.onRing(ownersTopic, () => {
    void table
      .pull()
      .then(move)
      .catch(() => undefined);
  });
  health.check('mailboxes of others', () => strangers.report());
  onClose(async () => {
    await listener.close();
    link.close();
    await table.save();
  });
  return { owners, assign: (username) => table.assign(username) };
}

async function withMessages(place: MailboxPlace, isAsked: (username: string) => boolean): Promise<readonly string[]> {
  const found: string[] = [];
  for (const username of await place.list())
    if (isAsked(username) && ((await place.count(username)) ?? 0) > 0) found.push(username);
  return found;
}

/** Mailboxes with messages that lie here, though another node is the owner: no page shows them. */
class StrangeMailboxes {
  readonly #table: OwnerTable;
  readonly #node: string;
  #found: readonly string[] = [];

  constructor(table: OwnerTable, node: string) {
    this.#table = table;
    this.#node = node;
  }

  async look(place: MailboxPlace): Promise<void> {
    const isOfOther = (username: string): boolean => {
      const owner = this.#table.find(username);
      return owner !== undefined && owner.node !== this.#node;
    };
    this.#found = await withMessages(place, isOfOther);
  }

  report() {
    const still = this.#found.filter((username) => this.#table.find(username)?.node !== this.#node);
    if (still.length === 0) return { status: 'up' as const };
    const named = still.slice(0, 5).join(', ') + (still.length > 5 ? ` and ${still.length - 5} more` : '');
    const why = `Messages lie here in mailboxes of other nodes, where nobody reads them: ${named}.`;
    return { status: 'degraded' as const, why, page: '/cluster' };
  }
}

const mailboxDestination = `target:${targets.mailbox}`;

/** Mail that waits for a mailbox is tried at once. */
async function hurryMail(node: ClusterNode): Promise<void> {
  await node.database.query(
    'pages',
    'update postern.recipient set due = $1 where destination = $2 and lane = 1 and state in (1, 2) and due > $1',
    [node.clock.now(), mailboxDestination],
  );
  node.ringAll('due', [mailboxDestination]);
}
