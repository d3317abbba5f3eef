import type { Recipient } from '../../pipeline/transaction.js';

export interface HeaderLimits {
  readonly headerFields: number;
  readonly headerBytes: number;
  /** Received header fields. */
  readonly hops: number;
}

export type HeaderViolation = 'header-too-large' | 'loop';

/** Looks at the header of a message as it passes by: its size, and whether the message goes round in circles. */
export class HeaderGuard {
  readonly #limits: HeaderLimits;
  readonly #recipients: readonly Recipient[];
  /** Lower case. A message that was delivered to one of them already is in a loop. */
  #addresses: ReadonlySet<string> | undefined;
  #done = false;
  #line = '';
  #bytes = 0;
  #fields = 0;
  #hops = 0;
  #violation: HeaderViolation | undefined;

  constructor(limits: HeaderLimits, recipients: readonly Recipient[]) {
    this.#limits = limits;
    this.#recipients = recipients;
  }

  get violation(): HeaderViolation | undefined {
    return this.#violation;
  }

  /** Takes decoded text, whose line endings are CRLF; what follows the header costs nothing. */
  add(chunk: Buffer): void {
    let at = 0;
    while (!this.#done && at < chunk.length) {
      const end = chunk.indexOf(10, at);
      const to = end < 0 ? chunk.length : end + 1;
      this.#line += chunk.toString('latin1', at, to);
      this.#bytes += to - at;
      at = to;
      if (this.#bytes > this.#limits.headerBytes) this.#refuse('header-too-large');
      else if (end >= 0) this.#endLine();
    }
  }

  #endLine(): void {
    const line = this.#line;
    this.#line = '';
    if (line.startsWith(' ') || line.startsWith('\t')) return;
    const colon = line.indexOf(':');
    // An empty line, or one that is no field: the body begins.
    if (colon < 0) {
      this.#done = true;
      return;
    }
    this.#fields += 1;
    if (this.#fields > this.#limits.headerFields) this.#refuse('header-too-large');
    const name = line.slice(0, colon).trimEnd().toLowerCase();
    if (name === 'received') {
      this.#hops += 1;
      if (this.#hops > this.#limits.hops) this.#refuse('loop');
    } else if (name === 'delivered-to' && this.#isRecipient(line.slice(colon + 1))) {
      this.#refuse('loop');
    }
  }

  #isRecipient(text: string): boolean {
    this.#addresses ??= new Set(this.#recipients.map(({ address }) => address.address.toLowerCase()));
    return this.#addresses.has(text.trim().toLowerCase());
  }

  #refuse(violation: HeaderViolation): void {
    this.#violation ??= violation;
    this.#done = true;
    this.#line = '';
  }
}
