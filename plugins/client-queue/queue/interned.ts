/** A copy of its own: a piece of a larger text keeps all of that in memory, and one that was joined all of its pieces. */
export function flat(text: string): string {
  return Buffer.from(text).toString();
}

/** Keeps one copy of texts that come again and again: hosts, domains, replies. Bounded; an old copy does no harm. */
export class Interned {
  readonly #most: number;
  #texts = new Map<string, string>();
  #before = new Map<string, string>();

  constructor(most = 20_000) {
    this.#most = most;
  }

  of(text: string): string {
    const found = this.#texts.get(text);
    if (found !== undefined) return found;
    const known = this.#before.get(text) ?? flat(text);
    if (this.#texts.size >= this.#most) {
      this.#before = this.#texts;
      this.#texts = new Map();
    }
    this.#texts.set(known, known);
    return known;
  }
}
