import { randomBytes } from 'node:crypto';
import nunjucks from 'nunjucks';

/** Of one place in a template: how many renderings are kept, and their bytes. */
const maxKept = 50;
const maxBytes = 4 * 1024 * 1024;

interface Kept {
  readonly keys: readonly unknown[];
  readonly bytes: Buffer;
}

interface TagParser {
  nextToken(): { readonly value: string; readonly lineno: number; readonly colno: number };
  parseSignature(tolerant: null, noParens: true): { addChild(node: object): void };
  advanceAfterBlockEnd(name?: string): void;
  parseUntilBlocks(end: string): object;
}

interface NodeTypes {
  readonly Literal: new (line: number, column: number, value: number) => object;
  readonly CallExtension: new (extension: object, method: string, keys: object, content: readonly object[]) => object;
}

/**
 * `{% keep KEY, … %}…{% endkeep %}` renders and encodes a part once for the same keys, which must decide all that it shows: objects
 * that are replaced when they change, and `page.rights` where it asks `page.may`. It is not kept while a key is empty or undefined.
 */
export class KeptParts implements nunjucks.Extension {
  readonly tags = ['keep'];
  /** By the place in a template, which gets another number when that is compiled again; the one used last is the last. */
  readonly #kept: Kept[][] = [];
  /** With a number, it marks the place of a part in the text of a page. It is secret, so that no value of a page can name a part. */
  readonly #mark = randomBytes(16).toString('hex');
  readonly #marks = new RegExp(`<${this.#mark} (\\d+)>`);
  /** Parts of the page that is rendered now. */
  #shown: Buffer[] = [];
  #isInside = false;

  parse(parser: TagParser, { Literal, CallExtension }: NodeTypes): object {
    const { value, lineno, colno } = parser.nextToken();
    const keys = parser.parseSignature(null, true);
    keys.addChild(new Literal(lineno, colno, this.#kept.push([]) - 1));
    parser.advanceAfterBlockEnd(value);
    const content = parser.parseUntilBlocks('endkeep');
    parser.advanceAfterBlockEnd();
    return new CallExtension(this, 'run', keys, [content]);
  }

  /** @param given the keys, the place, and what renders the part */
  run(_context: unknown, ...given: readonly unknown[]): unknown {
    const render = given.at(-1) as () => unknown;
    const kept = this.#kept[given.at(-2) as number] ?? [];
    const keys = given.slice(0, -2);
    const safe = (text: string): unknown => new nunjucks.runtime.SafeString(text);
    if (this.#isInside || keys.some((key) => key === undefined || key === '')) return safe(String(render()));
    const index = kept.findIndex((one) => one.keys.every((key, i) => key === keys[i]));
    const [part = { keys, bytes: this.#encode(render) }] = index === -1 ? [] : kept.splice(index, 1);
    kept.push(part);
    let bytes = kept.reduce((sum, one) => sum + one.bytes.length, 0);
    while (kept.length > maxKept || bytes > maxBytes) bytes -= kept.shift()?.bytes.length ?? bytes;
    return safe(`<${this.#mark} ${this.#shown.push(part.bytes) - 1}>`);
  }

  #encode(render: () => unknown): Buffer {
    this.#isInside = true;
    try {
      return Buffer.from(String(render()));
    } finally {
      this.#isInside = false;
    }
  }

  /** Calls the function, and puts the parts where they belong in the text that it returns. */
  within(render: () => string): string | Buffer {
    this.#shown = [];
    const text = render();
    if (this.#shown.length === 0) return text;
    const pieces = text.split(this.#marks);
    return Buffer.concat(
      pieces.map((piece, i) => (i % 2 === 0 ? Buffer.from(piece) : (this.#shown[Number(piece)] ?? Buffer.alloc(0)))),
    );
  }
}
