import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { Mailboxes, MessagesPage, StoredMessage } from '../../core/contracts/mailboxes.js';
import type { Address } from '../../core/mime/address.js';
import { scanHeader } from '../../core/mime/header.js';
import { problem } from '../../core/problem.js';
import type { DeliveredMail } from './delivered-mail.js';

interface Filed {
  readonly id: string;
  readonly folder: string;
  readonly unread: boolean;
  readonly flagged: boolean;
}

/** The mailboxes of a test: what was delivered, and what the plugin files. A folder is there once it has been named. */
export class MemoryMailboxes implements Mailboxes {
  readonly #delivered: DeliveredMail[];
  readonly #now: () => number;
  /** Where a plugin has filed it; else in INBOX. */
  readonly #filed = new Map<DeliveredMail, Filed>();
  readonly #receivedAt = new Map<DeliveredMail, string>();
  readonly #ensured = new Set<string>();
  #count = 0;

  constructor(delivered: DeliveredMail[], now: () => number) {
    this.#delivered = delivered;
    this.#now = now;
  }

  ensure({ address }: Address): Promise<void> {
    this.#ensured.add(address);
    return Promise.resolve();
  }

  exists(): Promise<boolean> {
    return Promise.resolve(true);
  }

  list(): Promise<readonly string[]> {
    const known = this.#delivered.flatMap(({ target, mailbox }) => (target === 'mailbox' ? mailbox : []));
    return Promise.resolve([...new Set([...known, ...this.#ensured])].toSorted());
  }

  folders({ address }: Address) {
    const names = new Set(['INBOX', ...this.#mails(address).map(([, { folder }]) => folder)]);
    return Promise.resolve(
      [...names].map((name) => {
        const its = this.#mails(address).filter(([, { folder }]) => folder === name);
        return { name, total: its.length, unread: its.filter(([, { unread }]) => unread).length };
      }),
    );
  }

  messages({ address }: Address, folder: string, { limit = 50, cursor = '0' } = {}): Promise<MessagesPage> {
    const all = this.#mails(address).filter(([, filed]) => filed.folder === folder);
    const from = Number(cursor);
    const items = all.toReversed().slice(from, from + limit);
    const nextCursor = from + limit < all.length ? String(from + limit) : null;
    return Promise.resolve({ items: items.map(([mail, filed]) => this.#summary(mail, filed)), nextCursor });
  }

  read({ address }: Address, folder: string, id: string): Promise<Readable> {
    const found = this.#mails(address).find(([, filed]) => filed.folder === folder && filed.id === id);
    if (found === undefined) return Promise.reject(problem('not-found'));
    return Promise.resolve(Readable.from([Buffer.from(found[0].eml)]));
  }

  async append({ address }: Address, folder: string, message: AsyncIterable<Buffer>, { read = false } = {}) {
    const bytes = await buffer(message);
    if (bytes.length === 0) throw problem('invalid', 'The message is empty.');
    const block = scanHeader(bytes);
    const headers = block.fields.map((field) => [field.name, block.value(field)] as const);
    const eml = bytes.toString();
    const mail: DeliveredMail = { target: 'mailbox', mailbox: address, from: '', to: [], headers, eml };
    this.#delivered.push(mail);
    return this.#file(mail, { folder, unread: !read, flagged: false }).id;
  }

  file({ address }: Address, from: string, to: string, ids: readonly string[]) {
    const moved = this.#mails(address).filter(([, { folder, id }]) => folder === from && ids.includes(id));
    return Promise.resolve(
      Object.fromEntries(moved.map(([mail, filed]) => [filed.id, this.#file(mail, { ...filed, folder: to }).id])),
    );
  }

  mark({ address }: Address, folder: string, ids: readonly string[], mark: 'read' | 'unread' | 'flag' | 'unflag') {
    const set = mark.endsWith('flag') ? { flagged: mark === 'flag' } : { unread: mark === 'unread' };
    const found = this.#mails(address).filter(([, filed]) => filed.folder === folder && ids.includes(filed.id));
    for (const [mail, filed] of found) this.#filed.set(mail, { ...filed, ...set });
    return Promise.resolve(ids.filter((id) => !found.some(([, filed]) => filed.id === id)));
  }

  #mails(address: string): readonly (readonly [DeliveredMail, Filed])[] {
    return this.#delivered
      .filter(({ target, mailbox }) => target === 'mailbox' && mailbox === address)
      .map((mail) => [
        mail,
        this.#filed.get(mail) ?? this.#file(mail, { folder: 'INBOX', unread: true, flagged: false }),
      ]);
  }

  #file(mail: DeliveredMail, where: Omit<Filed, 'id'>): Filed {
    this.#count += 1;
    const filed = { ...where, id: `m${this.#count}` };
    this.#filed.set(mail, filed);
    if (!this.#receivedAt.has(mail)) this.#receivedAt.set(mail, new Date(this.#now()).toISOString());
    return filed;
  }

  #summary(mail: DeliveredMail, { id, unread, flagged }: Filed): StoredMessage {
    const field = (name: string) => mail.headers.find(([key]) => key.toLowerCase() === name)?.[1];
    return {
      id,
      subject: field('subject') ?? '',
      from: field('from') ?? null,
      internetMessageId: field('message-id') ?? null,
      receivedAt: this.#receivedAt.get(mail) ?? '',
      size: Buffer.byteLength(mail.eml),
      unread,
      flagged,
    };
  }
}
