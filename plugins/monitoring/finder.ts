import type { Directory } from '../../core/contracts/directory.js';
import { entryStates } from '../../core/contracts/queue-entry.js';
import type { QueuedMail } from '../../core/contracts/relay-queue.js';
import type { Catalogue } from '../../core/contracts/server.js';
import { uniqueIdPattern } from '../../core/disk/id.js';
import { type Address, parseAddress } from '../../core/mime/address.js';
import { isProblem } from '../../core/problem.js';
import { formatNumber } from '../../core/text/format.js';

/** A page about the query. */
export interface FoundPage {
  readonly title: string;
  readonly href: string;
  /** Access of the page, as on the landing page. */
  readonly access: string;
  /** The only page about the query. */
  readonly exact: boolean;
}

export interface PageFinderDeps {
  readonly catalogue: Pick<Catalogue, 'endpoints'>;
  readonly directory: Directory | undefined;
  readonly relayQueue: QueuedMail | undefined;
}

/** Finds pages for a queue uid, a Message-ID or an address. */
export class Finder {
  readonly #deps: PageFinderDeps;

  constructor(deps: PageFinderDeps) {
    this.#deps = deps;
  }

  /** Most likely first; pages that are not available are left out. */
  async find(text: string): Promise<readonly FoundPage[]> {
    const found = [
      await this.exact(text),
      await this.#mailbox(text),
      await this.#entries(text),
      this.#trace(text),
      this.#log(text),
    ];
    return found.filter((finding) => finding !== undefined);
  }

  /** The only page about the text. */
  async exact(text: string): Promise<FoundPage | undefined> {
    const { relayQueue } = this.#deps;
    const uid = text.toLowerCase();
    const access = this.#accessOf('/client/queue/{uid}');
    if (relayQueue === undefined || access === undefined || !uniqueIdPattern.test(uid)) return undefined;
    const entry = await relayQueue.find(uid);
    if (entry === undefined) return undefined;
    return { title: `Queue entry ${uid}, ${entry.state}`, href: `/client/queue/${uid}`, access, exact: true };
  }

  async #mailbox(text: string): Promise<FoundPage | undefined> {
    const address = addressOf(text);
    const access = this.#accessOf('/store/{domain}/{user}');
    if (address === undefined || access === undefined) return undefined;
    const user = await this.#deps.directory?.resolve(address);
    if (user === undefined) return undefined;
    const { local, domain } = user.address;
    const href = `/store/${encodeURIComponent(domain)}/${encodeURIComponent(local)}`;
    return { title: `Mailbox ${user.username}`, href, access, exact: false };
  }

  async #entries(text: string): Promise<FoundPage | undefined> {
    const { relayQueue } = this.#deps;
    const access = this.#accessOf('/client/queue/list');
    if (relayQueue === undefined || access === undefined) return undefined;
    const { items, total } = await relayQueue.list({ filter: { q: text, state: entryStates }, limit: 1 });
    const [first] = items;
    if (first === undefined) return undefined;
    const list = `/client/queue/list?state=all&q=${encodeURIComponent(text)}`;
    const counted = typeof total === 'number' ? formatNumber(total) : `More than ${formatNumber(total.least)}`;
    return {
      title: total === 1 ? 'One entry of the queue' : `${counted} entries of the queue`,
      href: total === 1 ? `/client/queue/${first.uid}` : list,
      access,
      exact: false,
    };
  }

  #trace(text: string): FoundPage | undefined {
    const access = this.#accessOf('/trace');
    if (access === undefined || /\s/.test(text)) return undefined;
    return { title: 'Trace of messages', href: `/trace?address=${encodeURIComponent(text)}`, access, exact: false };
  }

  #log(text: string): FoundPage | undefined {
    const access = this.#accessOf('/logs');
    if (access === undefined) return undefined;
    // Quoted, since spaces would separate words.
    const phrase = /\s/.test(text) && !text.includes('"') ? `"${text}"` : text;
    return { title: 'Lines of the log', href: `/logs?q=${encodeURIComponent(phrase)}`, access, exact: false };
  }

  /** Undefined when the endpoint is not mounted. */
  #accessOf(path: string): string | undefined {
    return this.#deps.catalogue.endpoints().find((one) => one.method === 'GET' && one.path === path)?.access;
  }
}

/** With or without angle brackets; a Message-ID looks like an address and has no mailbox. */
export function addressOf(text: string): Address | undefined {
  try {
    return parseAddress(text.replace(/^<(.*)>$/, '$1'));
  } catch (error) {
    if (isProblem(error)) return undefined;
    throw error;
  }
}
