import type { MailboxOwners, MailboxPlace } from '../../../core/contracts/mailbox-owners.js';
import type { DeliveryTarget } from '../../../core/pipeline/delivery-target.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import { dividedTarget, type Whereabouts } from './divided-target.js';
import type { NodeDirectory } from './node-directory.js';
import type { OwnerTable } from './owner-table.js';
import type { PeerLink } from './peer-link.js';

interface OwnedInput {
  readonly node: string;
  readonly table: OwnerTable;
  readonly nodes: NodeDirectory;
  readonly link: PeerLink;
  readonly log: Log;
  /** Called with the mailboxes of this server, before mail is accepted. */
  readonly opened: (place: MailboxPlace) => Promise<void>;
}

/** The mailboxes of a node that has some of those of the cluster. */
export class OwnedMailboxes implements MailboxOwners {
  readonly #input: OwnedInput;
  /** Work in progress, by mailbox. */
  readonly #uses = new Map<string, number>();
  readonly #waiting = new Map<string, (() => void)[]>();
  /** Mailboxes that are closed, whatever the table says, with the number of reasons. */
  readonly #closed = new Map<string, number>();
  #place: MailboxPlace | undefined;

  constructor(input: OwnedInput) {
    this.#input = input;
  }

  get node(): string {
    return this.#input.node;
  }

  async open(place: MailboxPlace): Promise<void> {
    this.#place = place;
    await this.#input.opened(place);
  }

  divided(target: DeliveryTarget): DeliveryTarget {
    const { link, log } = this.#input;
    return dividedTarget({
      target,
      find: (username) => this.find(username),
      otherNode: (username) => this.otherNode(username),
      usernameIn: (path) => this.#place?.usernameIn(path),
      link,
      log,
    });
  }

  isHere(username: string): boolean {
    return this.#input.table.find(username)?.node === this.#input.node && !this.#closed.has(username);
  }

  async settle(username: string): Promise<void> {
    await this.#input.table.assign(username);
  }

  async use<T>(username: string, work: () => T | Promise<T>): Promise<T> {
    const other = this.otherNode(username);
    if (other !== undefined) throw this.#misdirected(username, other);
    const release = this.#hold(username);
    if (release === undefined) {
      const detail = `The mailbox ${username} moves to another server. Try again in a while.`;
      throw problem('unavailable', { detail, headers: { 'Retry-After': '10' } });
    }
    try {
      return await work();
    } finally {
      release();
    }
  }

  /** @throws Problem `unavailable` when it has no owner and the database is away */
  async find(username: string): Promise<Whereabouts> {
    const { node } = await this.#input.table.assign(username);
    if (node !== this.#input.node) return { at: 'node', node };
    const release = this.#hold(username);
    return release === undefined ? { at: 'nowhere' } : { at: 'here', release };
  }

  /** No further use of the mailbox begins until the result is called. */
  close(username: string): () => void {
    this.#closed.set(username, (this.#closed.get(username) ?? 0) + 1);
    return () => {
      const left = (this.#closed.get(username) ?? 1) - 1;
      if (left > 0) this.#closed.set(username, left);
      else this.#closed.delete(username);
    };
  }

  /** Resolves when the mailbox is not in use. To be called when no further use can begin. */
  async unused(username: string): Promise<void> {
    if (!this.#uses.has(username)) return;
    await new Promise<void>((resolve) => {
      this.#waiting.set(username, [...(this.#waiting.get(username) ?? []), resolve]);
    });
  }

  otherNode(username: string): string | undefined {
    const node = this.#input.table.find(username)?.node;
    return node === this.#input.node ? undefined : node;
  }

  /** Undefined when the mailbox may not be used. */
  #hold(username: string): (() => void) | undefined {
    if (this.#closed.has(username) || (this.#input.table.find(username)?.moving ?? null) !== null) return undefined;
    this.#uses.set(username, (this.#uses.get(username) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const left = (this.#uses.get(username) ?? 1) - 1;
      if (left > 0) {
        this.#uses.set(username, left);
        return;
      }
      this.#uses.delete(username);
      for (const resolve of this.#waiting.get(username) ?? []) resolve();
      this.#waiting.delete(username);
    };
  }

  #misdirected(username: string, node: string) {
    const pages = this.#input.nodes.pagesOf(node);
    const at = username.lastIndexOf('@');
    const path = `/store/${encodeURIComponent(username.slice(at + 1))}/${encodeURIComponent(username.slice(0, at))}`;
    return problem('misdirected', {
      detail: `The mailbox ${username} is on the node ${node}. Open it there.`,
      ...(pages !== undefined && {
        instead: [{ href: `${pages.replace(/\/$/, '')}${path}`, title: `${username} on ${node}` }],
      }),
    });
  }
}
