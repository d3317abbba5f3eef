import JSON5 from 'json5';

/**
 * Position of a key or element in a JSON5 text; lines and columns count from 1, lines end with LF, as for the parser.
 */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** A position with its file. */
export interface FilePosition extends Position {
  readonly file: string;
}

/** Path of a value, written `smtp.listeners.0.port`. */
export type KeyPath = string;

export const joinPath = (parent: KeyPath, key: string | number): KeyPath =>
  parent === '' ? String(key) : `${parent}.${key}`;

/** A key that its object already has; the parser uses the last value. */
export interface RepeatedKey {
  readonly path: readonly (string | number)[];
  readonly position: Position;
  readonly first: Position;
}

/**
 * Positions of all keys of a well-formed JSON5 text; the parser keeps none.
 *
 * @throws RangeError when the text is nested too deeply or its keys are too long; so do the other functions
 */
export function positionsOf(text: string): ReadonlyMap<KeyPath, Position> {
  return new Map(new Walk(text).values().map((value) => [keyOf(value), value.position]));
}

/** Offsets of every value: start, and end (exclusive). */
export function spansOf(text: string): ReadonlyMap<KeyPath, readonly [start: number, end: number]> {
  return new Map(new Walk(text).values().map((value) => [keyOf(value), [value.start, value.end]]));
}

/** Repeated keys of a JSON5 text, in order. */
export function repeatedKeys(text: string): readonly RepeatedKey[] {
  return new Walk(text)
    .values()
    .flatMap((value) =>
      value.first === undefined ? [] : [{ path: pathOf(value), position: value.position, first: value.first }],
    );
}

/** A complaint that includes the position. */
export const repeatedKeyMessage = ({ position: { line, column }, first }: RepeatedKey): string =>
  `line ${line}, column ${column}: ${firstPositionText(first)}`;

export const firstPositionText = (first: Position): string =>
  `this key is already in line ${first.line}; remove one of them`;

/** A member of an object or an element of a list in the text. */
interface WrittenValue {
  readonly above: WrittenValue | undefined;
  readonly name: string | number;
  /** Levels and characters of its path. */
  readonly depth: number;
  readonly length: number;
  /** Of the key or element. */
  readonly position: Position;
  /** Earlier position of the same key in its object. */
  readonly first: Position | undefined;
  readonly start: number;
  end: number;
}

const pathOf = ({ above, name }: WrittenValue): readonly (string | number)[] =>
  above === undefined ? [name] : [...pathOf(above), name];

const keyOf = (value: WrittenValue): KeyPath => pathOf(value).reduce<KeyPath>(joinPath, '');

/** Limit on nesting; the walk is recursive. */
const maxDepth = 100;
/** Limit on the length of a path, as each value has one. */
const maxPathCharacters = 1000;

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

  /** All values except the root, each before its members. */
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
    if (depth > maxDepth) throw new RangeError(`nested deeper than ${maxDepth} levels in line ${position.line}`);
    if (length > maxPathCharacters) throw new RangeError(`too long in its keys in line ${position.line}`);
    const value = { above, name, depth, length, position, first, start: this.#at, end: this.#at };
    this.#values.push(value);
    this.#value(value);
    value.end = this.#at;
  }

  #inside(end: string): boolean {
    return this.#at < this.#text.length && this.#text[this.#at] !== end;
  }

  /** Key of a member, as the parser reads it. */
  #name(): string {
    const word = this.#word();
    if (word.includes('\\')) return Object.keys(JSON5.parse<object>(`{${word}:0}`))[0] ?? word;
    return /^["']/.test(word) ? word.slice(1, -1) : word;
  }

  /** A string, or an unquoted token. */
  #word(): string {
    const start = this.#at;
    const quote = this.#text[start];
    if (quote === '"' || quote === "'") this.#skipQuoted(quote);
    else this.#skip(bare);
    // Always advances, even in malformed text.
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
    // Fast path: there is rarely any space.
    if (/[\s/]/.test(this.#text.charAt(this.#at))) this.#skip(space);
  }

  #skip(what: RegExp): void {
    what.lastIndex = this.#at;
    if (what.test(this.#text)) this.#at = what.lastIndex;
  }

  /** Current position. Moves forward only, so each line end is counted once. */
  #position(): Position {
    for (; this.#counted < this.#at; this.#counted += 1) {
      if (this.#text[this.#counted] !== '\n') continue;
      this.#line += 1;
      this.#lineStart = this.#counted + 1;
    }
    return { line: this.#line, column: this.#at - this.#lineStart + 1 };
  }
}
