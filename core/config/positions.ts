import JSON5 from 'json5';

/** Where a key or element stands in a JSON5 text; lines and columns count from 1, and lines end with LF, as for the parser. */
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

/** A key that its object has already: of the values only the last would count. */
export interface RepeatedKey {
  readonly path: readonly (string | number)[];
  readonly position: Position;
  readonly first: Position;
}

/**
 * Finds where every key of a JSON5 text stands. The text has been parsed before, so it is well-formed: this only walks
 * it, because the parser keeps no positions.
 *
 * @throws RangeError when the text is nested too deeply or its keys are too long, as all that walk it
 */
export function positionsOf(text: string): ReadonlyMap<KeyPath, Position> {
  return new Map(new Walk(text).values().map((value) => [keyOf(value), value.position]));
}

/** Where every value below the whole of a JSON5 text begins, and what it ends before: offsets. */
export function spansOf(text: string): ReadonlyMap<KeyPath, readonly [start: number, end: number]> {
  return new Map(new Walk(text).values().map((value) => [keyOf(value), [value.start, value.end]]));
}

/** The keys of a JSON5 text that an object has more than once, in their order; the parser says nothing of them. */
export function repeatedKeys(text: string): readonly RepeatedKey[] {
  return new Walk(text)
    .values()
    .flatMap((value) =>
      value.first === undefined ? [] : [{ path: pathOf(value), position: value.position, first: value.first }],
    );
}

/** For who reads no place of its own beside it. */
export const repetition = ({ position: { line, column }, first }: RepeatedKey): string =>
  `line ${line}, column ${column}: ${alreadyThere(first)}`;

/** Of two equal keys nobody can say which was meant. */
export const alreadyThere = (first: Position): string =>
  `this key stands already in line ${first.line}; remove one of them`;

/** A member of an object or an element of a list, as it is written. */
interface WrittenValue {
  readonly above: WrittenValue | undefined;
  readonly name: string | number;
  /** How many levels, and how many characters, its path has. */
  readonly depth: number;
  readonly length: number;
  /** Of the key, or of the element. */
  readonly position: Position;
  /** Where its object has the same key already. */
  readonly first: Position | undefined;
  readonly start: number;
  end: number;
}

const pathOf = ({ above, name }: WrittenValue): readonly (string | number)[] =>
  above === undefined ? [name] : [...pathOf(above), name];

const keyOf = (value: WrittenValue): KeyPath => pathOf(value).reduce<KeyPath>(joinPath, '');

/** Deeper nesting is no configuration; the walk is recursive. */
const deepest = 100;
/** Nor are longer paths: each value has its own. */
const longest = 1000;

const space = /(?:\s+|\/\/[^\n\r\u2028\u2029]*|\/\*[^]*?\*\/)+/y;
const bare = /[^\s,:{}[\]/]+/y;

class Walk {
  readonly #text: string;
  readonly #values: WrittenValue[] = [];
  #at = 0;
  #line = 1;
  #lineStart = 0;
  #counted = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** All values but the whole, each before what is in it. */
  values(): readonly WrittenValue[] {
    this.#skipSpace();
    this.#value(undefined);
    return this.#values;
  }

  #value(value: WrittenValue | undefined): void {
    const opening = this.#text[this.#at];
    if (opening === '{') this.#members(value);
    else if (opening === '[') this.#elements(value);
    else this.#word();
  }

  #members(above: WrittenValue | undefined): void {
    const seen = new Map<string, Position>();
    this.#at += 1;
    for (this.#skipSpace(); this.#inside('}'); this.#skipComma()) {
      const position = this.#position();
      const name = this.#name();
      const first = seen.get(name);
      if (first === undefined) seen.set(name, position);
      this.#skipSpace();
      this.#at += 1;
      this.#skipSpace();
      this.#child(above, name, position, first);
    }
    this.#at += 1;
  }

  #elements(above: WrittenValue | undefined): void {
    this.#at += 1;
    this.#skipSpace();
    for (let index = 0; this.#inside(']'); index += 1) {
      this.#child(above, index, this.#position());
      this.#skipComma();
    }
    this.#at += 1;
  }

  #child(above: WrittenValue | undefined, name: string | number, position: Position, first?: Position): void {
    const depth = (above?.depth ?? 1) + 1;
    const length = (above?.length ?? 0) + 1 + String(name).length;
    if (depth > deepest) throw new RangeError(`nested deeper than ${deepest} levels in line ${position.line}`);
    if (length > longest) throw new RangeError(`too long in its keys in line ${position.line}`);
    const value = { above, name, depth, length, position, first, start: this.#at, end: this.#at };
    this.#values.push(value);
    this.#value(value);
    value.end = this.#at;
  }

  #inside(end: string): boolean {
    return this.#at < this.#text.length && this.#text[this.#at] !== end;
  }

  /** Of a member, as the parser reads it. */
  #name(): string {
    const word = this.#word();
    if (word.includes('\\')) return Object.keys(JSON5.parse<object>(`{${word}:0}`))[0] ?? word;
    return /^["']/.test(word) ? word.slice(1, -1) : word;
  }

  /** A string or what stands without quotes, as it is written. */
  #word(): string {
    const start = this.#at;
    const quote = this.#text[start];
    if (quote === '"' || quote === "'") this.#skipQuoted(quote);
    else this.#skip(bare);
    // Well-formed or not, the walk goes on.
    if (this.#at === start) this.#at += 1;
    return this.#text.slice(start, this.#at);
  }

  #skipQuoted(quote: string): void {
    for (this.#at += 1; this.#inside(quote); this.#at += 1) {
      if (this.#text[this.#at] === '\\') this.#at += 1;
    }
    this.#at += 1;
  }

  #skipComma(): void {
    this.#skipSpace();
    if (this.#text[this.#at] === ',') this.#at += 1;
    this.#skipSpace();
  }

  #skipSpace(): void {
    // Mostly there is none.
    if (/[\s/]/.test(this.#text.charAt(this.#at))) this.#skip(space);
  }

  #skip(what: RegExp): void {
    what.lastIndex = this.#at;
    if (what.test(this.#text)) this.#at = what.lastIndex;
  }

  /** Of where the walk is. It only goes on, so each line end is counted once. */
  #position(): Position {
    for (; this.#counted < this.#at; this.#counted += 1) {
      if (this.#text[this.#counted] !== '\n') continue;
      this.#line += 1;
      this.#lineStart = this.#counted + 1;
    }
    return { line: this.#line, column: this.#at - this.#lineStart + 1 };
  }
}
