import type { FoundLine, LogPlace } from './log-search.js';

/** A piece of text, marked when it matches the search. */
export interface TextPiece {
  readonly text: string;
  readonly hit: boolean;
}

export interface ShownField {
  readonly name: string;
  readonly value: readonly TextPiece[];
  /** Filter link: all lines of the same session, transaction, request or message. */
  readonly href: string | null;
}

/** A line prepared for display. */
export interface ShownLine {
  readonly at: string;
  readonly time: string | null;
  readonly level: string;
  readonly plugin: string | null;
  readonly message: readonly TextPiece[];
  readonly fields: readonly ShownField[];
  readonly stack: string | null;
  readonly matched: boolean;
  readonly gap: boolean;
}

export const placeName = ({ file, offset }: LogPlace): string => `${file}:${offset}`;

/** Parses a `placeName`; undefined for other text. */
export function readPlace(text: string | undefined): LogPlace | undefined {
  const [, file, offset] = /^(postern-\d{4}-\d{2}-\d{2}(?:\.\d{1,6})?\.log):(\d{1,15})$/.exec(text ?? '') ?? [];
  return file === undefined ? undefined : { file, offset: Number(offset) };
}

/** Message of the line; a line that is not JSON is shown as it is. */
export function entryOf(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : { msg: text };
  } catch {
    return { msg: text };
  }
}

const placed = new Set(['level', 'time', 'plugin', 'msg']);
const traces = new Set(['session', 'transaction', 'requestId', 'messageId', 'uid', 'queueId']);

/** @param node for links to the same log; empty without one */
export function shownLine(line: FoundLine, words: readonly string[], node: string): ShownLine {
  const entry = entryOf(line.text);
  const { level, time, plugin, msg } = entry;
  const text = (value: unknown): string | null => (typeof value === 'string' ? value : null);
  return {
    at: placeName(line),
    time: text(time),
    level: text(level) ?? 'none',
    plugin: text(plugin),
    message: segments(text(msg) ?? '', words),
    fields: Object.entries(entry)
      .filter(([name]) => !placed.has(name))
      .map(([name, value]) => shownField(name, value, words, node)),
    stack: stackOf(entry['err']),
    matched: line.matched,
    gap: line.gap,
  };
}

function shownField(name: string, value: unknown, words: readonly string[], node: string): ShownField {
  const shown = typeof value === 'string' ? value : (JSON.stringify(withoutStack(value)) ?? '');
  const traced = traces.has(name) && typeof value === 'string' && value !== '';
  const href = traced ? `/logs?q=${encodeURIComponent(value)}${node === '' ? '' : `&node=${node}`}` : null;
  return { name, value: segments(shown, words), href };
}

function withoutStack(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || !('stack' in value)) return value;
  const { stack: _, ...rest } = value;
  return rest;
}

function stackOf(error: unknown): string | null {
  if (typeof error !== 'object' || error === null || !('stack' in error)) return null;
  return typeof error.stack === 'string' && error.stack !== '' ? error.stack : null;
}

/** Maximum marks in one text, which a peer may fill with thousands. */
const maxHits = 20;

/** Splits text where one of the words begins and ends. */
export function segments(text: string, words: readonly string[]): readonly TextPiece[] {
  const lower = text.toLowerCase();
  const needles = words.map((word) => word.toLowerCase()).filter((word) => word !== '');
  // Letters that change their length in lower case shift positions, so nothing is marked.
  if (needles.length === 0 || lower.length !== text.length) return [{ text, hit: false }];
  const cut: TextPiece[] = [];
  let from = 0;
  for (let hits = 0; from < text.length; hits += 1) {
    const [start, length] = nextHit(lower, hits < maxHits ? needles : [], from);
    if (start > from) cut.push({ text: text.slice(from, start), hit: false });
    if (length > 0) cut.push({ text: text.slice(start, start + length), hit: true });
    from = start + length;
  }
  return cut;
}

/** The first and longest match from there on, or the end. */
function nextHit(text: string, needles: readonly string[], from: number): readonly [start: number, length: number] {
  let best: readonly [number, number] = [text.length, 0];
  for (const needle of needles) {
    const found = text.indexOf(needle, from);
    if (found !== -1 && (found < best[0] || (found === best[0] && needle.length > best[1])))
      best = [found, needle.length];
  }
  return best;
}
