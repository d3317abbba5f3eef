import { createHash } from 'node:crypto';
import { lines } from '../support/delivery.js';
import { behindTrace } from '../support/mailbox-reader.js';

/** Who may move a message: two clients that move the same one in the same instant can leave it in both places. */
export const imapMovers = ['imap0', 'imap1', 'imap2'] as const;
export type Mover = 'api' | (typeof imapMovers)[number];

export interface Composed {
  readonly token: string;
  readonly text: string;
}

/** A message as a reader found it at the end. */
export interface Found {
  readonly folder: string;
  readonly token: string;
  readonly body: Buffer;
}

const digestOf = (text: Buffer | string): string => createHash('sha256').update(text).digest('hex');

/** What came by SMTP has a trace in front, what was filed has none. */
const withoutTrace = (body: Buffer): Buffer =>
  body.toString('latin1').startsWith('Return-Path:') ? behindTrace(body) : body;

export const tokenOf = (text: Buffer | string): string =>
  /^Message-ID: <([\w.-]+)@storm\.example>/im.exec(text.toString('latin1'))?.[1] ?? 'none';
export const isMovedBy = (mover: Mover, token: string): boolean => token.endsWith(`.${mover}`);

/** What was made, and what somebody tried to delete: so that at the end each message can be accounted for. */
export class Ledger {
  /** Digests of the texts; undefined for one that changes. */
  readonly #entries = new Map<string, string | undefined>();
  /** Somebody tried to delete them, perhaps before their maker was told that they are there. */
  readonly #mayBeGone = new Set<string>();
  #count = 0;

  get size(): number {
    return this.#entries.size;
  }

  compose(mover: Mover): Composed {
    this.#count += 1;
    const token = `t${this.#count}.${mover}`;
    const body = Array.from({ length: 1 + (this.#count % 40) }, (_, n) => `line ${n} of ${token}`);
    const head = ['From: a@storm.example', `Subject: ${token}`, `Message-ID: <${token}@storm.example>`, ''];
    return { token, text: lines(...head, ...body) };
  }

  /** It is there for sure. A text that changes is a draft's: give none. */
  made(token: string, text?: string): void {
    this.#entries.set(token, text === undefined ? undefined : digestOf(text));
  }

  deleting(token: string): void {
    this.#mayBeGone.add(token);
  }

  /** A sentence for each message that is lost, doubled, changed or of nobody. */
  complaints(found: readonly Found[]): readonly string[] {
    const places = new Map<string, Found[]>();
    for (const one of found) places.set(one.token, [...(places.get(one.token) ?? []), one]);
    const lost = [...this.#entries.keys()].filter((token) => !this.#mayBeGone.has(token) && !places.has(token));
    const sentences = lost.map((token) => `${token} is lost`);
    for (const [token, copies] of places) {
      const digest = this.#entries.get(token);
      if (!this.#entries.has(token)) sentences.push(`${token} in ${copies[0]?.folder} is nobody's`);
      if (copies.length > 1) sentences.push(`${token} is in ${copies.map(({ folder }) => folder).join(' and in ')}`);
      const isChanged = copies.some(({ body }) => digest !== undefined && digest !== digestOf(withoutTrace(body)));
      if (isChanged) sentences.push(`${token} is changed`);
    }
    return sentences;
  }
}
