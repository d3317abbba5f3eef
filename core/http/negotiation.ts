import { problem } from '../problem.js';
import type { Representation } from './endpoint.js';

/** Media type of each representation; a handler chooses its own for `bytes`. */
export const mediaTypes: Readonly<Record<Exclude<Representation, 'bytes'>, string>> = {
  html: 'text/html',
  json: 'application/json',
  text: 'text/plain',
  rfc822: 'message/rfc822',
  ndjson: 'application/x-ndjson',
  openmetrics: 'application/openmetrics-text',
  events: 'text/event-stream',
};

export interface Wish {
  readonly accept: string;
  /** `?format=`, which overrides everything. */
  readonly format: string | undefined;
  readonly htmx: boolean;
}

interface Range {
  readonly type: string;
  readonly q: number;
}

/** Chooses among what an endpoint produces, or throws 406 (RFC 9110 §12.5.1). */
export function negotiate(produces: readonly Representation[], fallback: Representation, wish: Wish): Representation {
  if (wish.format !== undefined) return byName(produces, wish.format);
  if (produces.includes('bytes')) return 'bytes';
  if (wish.htmx && produces.includes('html')) return 'html';
  const ranges = parseAccept(wish.accept);
  if (ranges.length === 0) return fallback;
  const best = produces
    .map((representation) => ({ representation, ...qualityOf(representation, ranges) }))
    .filter(({ q }) => q > 0)
    .toSorted((a, b) => b.q - a.q || b.exactness - a.exactness || favour(b, fallback) - favour(a, fallback))[0];
  if (best === undefined) throw notAcceptable(produces);
  return best.representation;
}

const favour = (entry: { readonly representation: Representation }, fallback: Representation): number =>
  entry.representation === fallback ? 1 : 0;

function byName(produces: readonly Representation[], format: string): Representation {
  const named = produces.find((representation) => representation === format);
  if (named !== undefined) return named;
  if (Object.hasOwn(mediaTypes, format)) throw notAcceptable(produces);
  throw problem('bad-request', { errors: [{ pointer: 'format', message: `must be one of ${produces.join(', ')}` }] });
}

const notAcceptable = (produces: readonly Representation[]) =>
  problem('not-acceptable', `Offered here: ${produces.join(', ')}.`);

/** Whether an error is shown as a page. A wildcard means a script. */
export function prefersHtml(accept: string): boolean {
  const ranges = parseAccept(accept);
  const html = qualityOf('html', ranges);
  return html.exactness === 2 && html.q > 0 && html.q >= qualityOf('json', ranges, 2).q;
}

/** The most specific range decides the quality: 2 a type, 1 `text/*`, 0 a wildcard. */
function qualityOf(
  representation: Representation,
  ranges: readonly Range[],
  least = 0,
): { q: number; exactness: number } {
  const type = representation === 'bytes' ? '*/*' : mediaTypes[representation];
  const candidates = [type, `${type.split('/')[0]}/*`, '*/*'];
  for (const [index, candidate] of candidates.entries()) {
    if (2 - index < least) break;
    const range = ranges.find((one) => one.type === candidate);
    if (range !== undefined) return { q: range.q, exactness: 2 - index };
  }
  return { q: 0, exactness: -1 };
}

/** Only types and their q; a type that occurs twice counts with its best q. */
function parseAccept(field: string): readonly Range[] {
  return field
    .slice(0, 2000)
    .split(',')
    .map((part) => part.split(';').map((piece) => piece.trim()))
    .flatMap(([type = '', ...parameters]) => {
      if (type === '') return [];
      const q = parameters.find((parameter) => /^q=/i.test(parameter))?.slice(2);
      return [{ type: type.toLowerCase(), q: q === undefined ? 1 : Math.min(1, Math.max(0, Number(q) || 0)) }];
    })
    .toSorted((a, b) => b.q - a.q);
}
