/** Where a key or element stands in a JSON5 text; lines and columns count from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** The same, with the file. */
export interface Place extends Position {
  readonly file: string;
}

/** Path of a value, written `smtp.listeners.0.port`. */
export type KeyPath = string;

export const joinPath = (parent: KeyPath, key: string | number): KeyPath =>
  parent === '' ? String(key) : `${parent}.${key}`;

/**
 * Finds where every key of a JSON5 text stands. The text has been parsed before, so it is well-formed: this only walks
 * it, because the parser keeps no positions.
 */
export function positionsOf(text: string): ReadonlyMap<KeyPath, Position> {
  return new Walk(text).run().found;
}

/** Where every value of a JSON5 text begins, and what it ends before: offsets. */
export function spansOf(text: string): ReadonlyMap<KeyPath, readonly [start: number, end: number]> {
  return new Walk(text).run().spans;
}

/** Deeper nesting is no configuration; the walk is recursive. */
const deepest = 100;

class Walk {
  readonly #text: string;
  readonly found = new Map<KeyPath, Position>();
  readonly spans = new Map<KeyPath, readonly [start: number, end: number]>();
  #at = 0;
  #line = 1;
  #lineStart = 0;
  #counted = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Throws a RangeError when the text is nested too deeply. */
  run(): this {
    this.#value('');
    return this;
  }

  #value(path: KeyPath): void {
    this.#skipSpace();
    const start = this.#at;
    const first = this.#text[start];
    this.#depth += 1;
    if (this.#depth > deepest) throw new RangeError(`nested deeper than ${deepest} levels`);
    if (first === '{') this.#members(path);
    else if (first === '[') this.#elements(path);
    else if (first === '"' || first === "'") this.#quoted();
    else this.#bare();
    this.#depth -= 1;
    this.spans.set(path, [start, this.#at]);
  }

  #members(path: KeyPath): void {
    this.#at += 1;
    for (this.#skipSpace(); this.#inside('}'); this.#skipComma()) {
      const start = this.#at;
      const key = this.#key();
      const child = joinPath(path, key);
      this.#note(child, start);
      this.#skipSpace();
      this.#at += 1;
      this.#value(child);
    }
    this.#at += 1;
  }

  #elements(path: KeyPath): void {
    this.#at += 1;
    let index = 0;
    for (this.#skipSpace(); this.#inside(']'); this.#skipComma()) {
      const child = joinPath(path, index);
      this.#note(child, this.#at);
      this.#value(child);
      index += 1;
    }
    this.#at += 1;
  }

  #inside(end: string): boolean {
    return this.#at < this.#text.length && this.#text[this.#at] !== end;
  }

  #key(): string {
    const first = this.#text[this.#at];
    return first === '"' || first === "'" ? this.#quoted() : this.#bare();
  }

  #quoted(): string {
    const quote = this.#text[this.#at];
    const start = this.#at + 1;
    for (this.#at = start; this.#at < this.#text.length && this.#text[this.#at] !== quote; this.#at += 1) {
      if (this.#text[this.#at] === '\\') this.#at += 1;
    }
    this.#at += 1;
    return this.#text.slice(start, this.#at - 1);
  }

  #bare(): string {
    const start = this.#at;
    while (this.#at < this.#text.length && !/[\s,:{}[\]/]/.test(this.#text.charAt(this.#at))) this.#at += 1;
    if (this.#at === start) this.#at += 1;
    return this.#text.slice(start, this.#at);
  }

  #skipComma(): void {
    this.#skipSpace();
    if (this.#text[this.#at] === ',') this.#at += 1;
    this.#skipSpace();
  }

  #skipSpace(): void {
    const space = /(?:[\s\uFEFF]|\/\/[^\n]*|\/\*[^]*?\*\/)*/y;
    space.lastIndex = this.#at;
    space.exec(this.#text);
    this.#at = space.lastIndex;
  }

  /** Offsets only grow, so each line end is counted once. */
  #note(path: KeyPath, offset: number): void {
    for (; this.#counted < offset; this.#counted += 1) {
      if (this.#text[this.#counted] !== '\n') continue;
      this.#line += 1;
      this.#lineStart = this.#counted + 1;
    }
    this.found.set(path, { line: this.#line, column: offset - this.#lineStart + 1 });
  }
}
