import nunjucks from 'nunjucks';

/** Renderings of one part that are kept: one for each role, with some to spare. */
const maxKept = 6;

interface Kept {
  readonly keys: readonly unknown[];
  readonly html: unknown;
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
 * `{% keep KEY, … %}…{% endkeep %}` renders a part once for the same keys, which must decide all that it shows: objects that are
 * replaced when they change, and `page.rights` where it asks `page.may`. It is not kept while a key is empty or undefined.
 */
export class KeptParts implements nunjucks.Extension {
  readonly tags = ['keep'];
  /** By the place in a template, which gets another number when that is compiled again; the one used last is the last. */
  readonly #kept = new Map<number, Kept[]>();

  parse(parser: TagParser, { Literal, CallExtension }: NodeTypes): object {
    const { value, lineno, colno } = parser.nextToken();
    const keys = parser.parseSignature(null, true);
    const place = this.#kept.size;
    this.#kept.set(place, []);
    keys.addChild(new Literal(lineno, colno, place));
    parser.advanceAfterBlockEnd(value);
    const content = parser.parseUntilBlocks('endkeep');
    parser.advanceAfterBlockEnd();
    return new CallExtension(this, 'run', keys, [content]);
  }

  /** @param given the keys, the place, and what renders the part */
  run(_context: unknown, ...given: readonly unknown[]): unknown {
    const render = given.at(-1) as () => unknown;
    const kept = this.#kept.get(given.at(-2) as number) ?? [];
    const keys = given.slice(0, -2);
    const index = kept.findIndex((one) => one.keys.every((key, i) => key === keys[i]));
    const [known] = index === -1 ? [] : kept.splice(index, 1);
    const part = known ?? { keys, html: new nunjucks.runtime.SafeString(String(render())) };
    if (keys.some((key) => key === undefined || key === '')) return part.html;
    kept.push(part);
    if (kept.length > maxKept) kept.shift();
    return part.html;
  }
}
