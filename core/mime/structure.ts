import { type HeaderBlock, headerLimits, type HeaderLimits, scanHeader } from './header.js';
import { describePart, type PartDescription } from './content-type.js';

/** Bounds of a MIME tree; beyond them a message is shown as far as it was read. */
interface StructureLimits {
  readonly depth: number;
  readonly parts: number;
  readonly header: HeaderLimits;
}

export const structureLimits: StructureLimits = { depth: 100, parts: 1000, header: headerLimits };

/** A node of the MIME tree (RFC 2045, RFC 2046). Offsets are bytes into the message. */
export interface Part extends PartDescription {
  /** As in IMAP (RFC 3501 §6.4.5): `1`, `2.1`; a multipart that is a whole message is `TEXT`, in part 2 `2.TEXT`. */
  readonly part: string;
  readonly depth: number;
  readonly headerOffset: number;
  readonly bodyOffset: number;
  /** Offset after the last byte of the body; the line end before a boundary belongs to the boundary. */
  readonly end: number;
  readonly children: readonly Part[];
}

export interface Structure {
  readonly header: HeaderBlock;
  readonly root: Part;
  /** The root and all parts below it, in the order of the message. */
  readonly parts: readonly Part[];
  /** A limit was reached: deeper or later parts are inside of the last part. */
  readonly truncated: boolean;
}

interface OpenPart extends Part {
  end: number;
  readonly children: OpenPart[];
}

/**
 * Reads the MIME tree of a message. Tolerates missing end boundaries, reused boundaries, text after the end, and parts
 * without a header. One pass, no recursion, never throws.
 */
export function readStructure(bytes: Buffer, limits: StructureLimits = structureLimits): Structure {
  return new StructureReader(bytes, limits).read();
}

class StructureReader {
  readonly #bytes: Buffer;
  readonly #limits: StructureLimits;
  readonly #search: BoundarySearch;
  readonly #parts: OpenPart[] = [];
  /** The open parts, the root first. */
  readonly #open: OpenPart[] = [];
  #truncated = false;

  constructor(bytes: Buffer, limits: StructureLimits) {
    this.#bytes = bytes;
    this.#limits = limits;
    this.#search = new BoundarySearch(bytes);
  }

  read(): Structure {
    const header = this.#begin(0);
    const root = this.#parts[0];
    if (root === undefined) throw new Error('a message has a root part');
    let at = this.#descend(root);
    while (!this.#full()) {
      const line = this.#search.next(at);
      if (line === undefined) break;
      this.#closeTo(line.level, line.contentEnd);
      at = line.next;
      if (line.closing) this.#search.close(line.level);
      else at = this.#child(at);
    }
    this.#closeTo(0, this.#bytes.length);
    root.end = this.#bytes.length;
    return { header, root, parts: this.#parts, truncated: this.#truncated };
  }

  #full(): boolean {
    if (this.#parts.length < this.#limits.parts) return false;
    this.#truncated ||= this.#search.any;
    return true;
  }

  #child(at: number): number {
    this.#begin(at);
    const part = this.#parts.at(-1);
    return part === undefined ? at : this.#descend(part);
  }

  /** Opens the part at `at` below the last open one. */
  #begin(at: number): HeaderBlock {
    const parent = this.#open.at(-1);
    const header = scanHeader(this.#bytes, at, this.#limits.header, (line) => this.#search.isBoundary(line));
    const inDigest = parent?.contentType === 'multipart/digest';
    const part: OpenPart = {
      ...describePart(header, inDigest ? 'message/rfc822' : 'text/plain'),
      part: '',
      depth: this.#open.length,
      headerOffset: at,
      bodyOffset: header.bodyOffset,
      end: this.#bytes.length,
      children: [],
    };
    const numbered = { ...part, part: partNumber(parent, part) };
    parent?.children.push(numbered);
    this.#parts.push(numbered);
    this.#open.push(numbered);
    return header;
  }

  /** Enters a container; returns where to continue. */
  #descend(part: OpenPart): number {
    let at = part.bodyOffset;
    let inner = part;
    while (isMessage(inner) && this.#mayDescend()) {
      this.#begin(at);
      const below = this.#parts.at(-1);
      if (below === undefined) break;
      inner = below;
      at = inner.bodyOffset;
    }
    if (inner.boundary === undefined) return at;
    if (this.#mayDescend()) this.#search.open(this.#open.length, inner.boundary);
    return at;
  }

  #mayDescend(): boolean {
    const may = this.#open.length < this.#limits.depth && this.#parts.length < this.#limits.parts;
    if (!may) this.#truncated = true;
    return may;
  }

  /** Closes every open part deeper than `level`. */
  #closeTo(level: number, end: number): void {
    while (this.#open.length > level) {
      const part = this.#open.pop();
      if (part !== undefined) part.end = Math.max(part.bodyOffset, end);
    }
    this.#search.closeBelow(level);
  }
}

/** Encoded containers cannot be entered; RFC 2046 §5.2.1 forbids most of them. */
function isMessage(part: Part): boolean {
  return (
    (part.contentType === 'message/rfc822' || part.contentType === 'message/global') &&
    part.encoding !== 'base64' &&
    part.encoding !== 'quoted-printable'
  );
}

function partNumber(parent: OpenPart | undefined, part: OpenPart): string {
  const multipart = part.boundary !== undefined;
  if (parent === undefined) return multipart ? 'TEXT' : '1';
  const prefix = parent.part === 'TEXT' ? '' : `${parent.part.replace(/\.TEXT$/, '')}.`;
  if (isMessage(parent) && parent.boundary === undefined) return multipart ? `${parent.part}.TEXT` : `${parent.part}.1`;
  return `${prefix}${parent.children.length + 1}`;
}

/** The part with that number, if it has a body of its own. */
export function findPart(structure: Structure, number: string): Part | undefined {
  return structure.parts.find((part) => part.part === number);
}

/** A boundary line (RFC 2046 §5.1.1) of a multipart that is open. */
interface BoundaryLine {
  /** Level given to `open`. */
  readonly level: number;
  /** End of the part before it; the line end before the boundary belongs to the boundary. */
  readonly contentEnd: number;
  /** Offset after the line. */
  readonly next: number;
  /** `--boundary--`: end of the multipart. */
  readonly closing: boolean;
}

/** Maximum length of a boundary line. */
const slack = 80;

/**
 * Finds the boundary lines of all open multiparts in one pass; the cost of a line does not depend on how many are open.
 */
class BoundarySearch {
  readonly #bytes: Buffer;
  /** Levels of the multiparts with that boundary, the innermost last. */
  readonly #levels = new Map<string, number[]>();
  readonly #stack: { readonly level: number; readonly boundary: string }[] = [];
  #longest = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get any(): boolean {
    return this.#stack.length > 0;
  }

  open(level: number, boundary: string): void {
    // Lines are compared as bytes, while headers were decoded as UTF-8.
    const key = Buffer.from(boundary, 'utf8').toString('latin1');
    this.#stack.push({ level, boundary: key });
    this.#levels.set(key, [...(this.#levels.get(key) ?? []), level]);
    this.#longest = Math.max(this.#longest, key.length);
  }

  /** Marks the multipart at `level`, and all below it, as ended. */
  close(level: number): void {
    this.closeBelow(level - 1);
  }

  /** Forgets the multiparts deeper than `level`. */
  closeBelow(level: number): void {
    for (let last = this.#stack.at(-1); last !== undefined && last.level > level; last = this.#stack.at(-1)) {
      this.#stack.pop();
      const levels = this.#levels.get(last.boundary);
      levels?.pop();
      if (levels?.length === 0) this.#levels.delete(last.boundary);
    }
  }

  next(from: number): BoundaryLine | undefined {
    if (!this.any) return undefined;
    let at = this.#lineStart(from);
    while (at >= 0) {
      const line = this.#match(at);
      if (line !== undefined) return line;
      const found = this.#bytes.indexOf('\n--', at, 'latin1');
      at = found < 0 ? -1 : found + 1;
    }
    return undefined;
  }

  isBoundary(lineStart: number): boolean {
    return this.any && this.#match(lineStart) !== undefined;
  }

  /** `from` itself if a line begins there, else the next line that begins with dashes. */
  #lineStart(from: number): number {
    if (from === 0 || this.#bytes[from - 1] === 0x0a) return from;
    const found = this.#bytes.indexOf('\n--', from, 'latin1');
    return found < 0 ? -1 : found + 1;
  }

  #match(at: number): BoundaryLine | undefined {
    if (this.#bytes[at] !== 0x2d || this.#bytes[at + 1] !== 0x2d) return undefined;
    const limit = Math.min(this.#bytes.length, at + 2 + this.#longest + slack);
    let end = at + 2;
    while (end < limit && this.#bytes[end] !== 0x0a) end++;
    if (end === limit && limit < this.#bytes.length) return undefined;
    const text = this.#bytes.toString('latin1', at + 2, end).trimEnd();
    const open = this.#levels.get(text)?.at(-1);
    const level = open ?? (text.endsWith('--') ? this.#levels.get(text.slice(0, -2))?.at(-1) : undefined);
    if (level === undefined) return undefined;
    return {
      level,
      contentEnd: this.#contentEnd(at),
      next: Math.min(end + 1, this.#bytes.length),
      closing: open === undefined,
    };
  }

  #contentEnd(at: number): number {
    const newline = at > 0 && this.#bytes[at - 1] === 0x0a ? at - 1 : at;
    return newline < at && newline > 0 && this.#bytes[newline - 1] === 0x0d ? newline - 1 : newline;
  }
}

/** Header field that identifies an attachment of a draft, so that its id is stable when other parts change. */
export const attachmentField = 'X-Postern-Attachment';

/**
 * An attachment is a leaf that is neither displayed text nor an image shown by the HTML, or a forwarded message as a
 * whole.
 */
export function isAttachment(part: Part): boolean {
  if (part.disposition === 'attachment') return true;
  if (part.contentType.startsWith('multipart/')) return false;
  if (part.contentType === 'message/rfc822' || part.contentType === 'message/global') return true;
  if (part.contentType === 'text/plain') return part.filename !== undefined && part.disposition !== undefined;
  if (part.contentType.startsWith('text/')) return part.filename !== undefined;
  return !(part.cid !== undefined && part.contentType.startsWith('image/'));
}

/** The leaves and forwarded messages of the message in order, without the content of forwarded messages. */
export function ownParts(structure: Structure): readonly Part[] {
  const own: Part[] = [];
  const visit = [structure.root];
  for (let part = visit.pop(); part !== undefined; part = visit.pop()) {
    if (part.boundary === undefined) own.push(part);
    else visit.push(...part.children.toReversed());
  }
  return own;
}
