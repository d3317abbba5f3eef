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
    const known = this.#before.get(text) ?? text;
    if (this.#texts.size >= this.#most) {
      this.#before = this.#texts;
      this.#texts = new Map();
    }
    this.#texts.set(known, known);
    return known;
  }
}
