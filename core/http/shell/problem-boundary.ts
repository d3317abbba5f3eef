import { STATUS_CODES } from 'node:http';
import type { Log } from '../../log/log.js';
import {
  classOf,
  type InvalidPlace,
  isProblem,
  type PageLink,
  problem,
  type Problem,
  type ProblemName,
} from '../../problem.js';
import { type Context, type Next, type Middleware, wantsFragment } from '../exchange.js';
import { prefersHtml } from '../negotiation.js';
import type { Pages } from '../pages.js';
import { ownReferer } from '../referer.js';

/** Turns every exception into a response: JSON, page or toast. */
export function problemBoundary(pages: Pages, log: Log): Middleware {
  return async function answerProblems(ctx: Context, next: Next) {
    try {
      await next(ctx);
      if (ctx.body === undefined && ctx.status === 404) throw problem('not-found');
    } catch (thrown) {
      respond(ctx, asProblem(thrown), pages, log);
    }
    // An unread body would be taken for the next request.
    if (!ctx.req.complete) ctx.set('Connection', 'close');
  };
}

function respond(ctx: Context, found: Problem, pages: Pages, log: Log): void {
  const { id, route } = ctx.state.exchange;
  // The owner of a full mailbox makes room in it.
  if (classOf(found).http >= 500 && found.problem !== 'mailbox-full') {
    log.error(
      { requestId: id, route: route?.endpoint.path, problem: found.problem, err: causeOf(found) },
      'request failed',
    );
  }
  if (ctx.res.headersSent) {
    ctx.res.destroy();
    return;
  }
  ctx.compress = false;
  ctx.status = classOf(found).http;
  for (const name of ['ETag', 'Location', 'Content-Disposition', 'Content-Encoding', 'Accept-Ranges', 'Link'])
    ctx.remove(name);
  ctx.set('Cache-Control', 'no-store');
  ctx.vary('Accept');
  ctx.vary('HX-Request');
  ctx.set({ ...found.details.headers });
  write(ctx, found, pages, log);
}

const causeOf = (found: Problem): unknown => found.details.cause ?? found;

function write(ctx: Context, found: Problem, pages: Pages, log: Log): void {
  const document = problemDocument(found, ctx.state.exchange.id);
  if (wantsHtml(ctx)) {
    const { title } = classOf(found);
    const shown = { ...document, title, detail: found.details.detail };
    const html = tryRender(ctx, () => ({ problem: shown, back: backOf(ctx, pages) }), pages, log);
    if (html !== undefined) {
      ctx.set('Content-Type', 'text/html; charset=utf-8');
      ctx.body = html;
      return;
    }
  }
  ctx.set('Content-Type', 'application/problem+json');
  ctx.body = `${JSON.stringify(document)}\n`;
}

function wantsHtml(ctx: Context): boolean {
  const { format } = ctx.query;
  if (format === 'html') return true;
  if (format !== undefined) return false;
  return wantsFragment(ctx) || prefersHtml(ctx.get('Accept'));
}

/** A failing page must not fail again while showing the error. */
function tryRender(ctx: Context, model: () => object, pages: Pages, log: Log): string | Buffer | undefined {
  try {
    return wantsFragment(ctx)
      ? pages.renderPart('toast.njk', model())
      : pages.render(ctx, 'error.njk', 'Error', model());
  } catch (error) {
    log.error({ requestId: ctx.state.exchange.id, err: error }, 'the error page failed');
    return undefined;
  }
}

/** The previous page, else the nearest one above; never an address without a page for this account. */
function backOf(ctx: Context, pages: Pages): string | null {
  const back = ownReferer(ctx);
  if (back !== undefined && back !== ctx.url && pages.may(ctx, back)) return back;
  for (let above = parentOf(ctx.path); above !== ''; above = parentOf(above)) {
    const page = pages.may(ctx, above) ? above : pages.below(ctx, above);
    if (page !== undefined && page !== ctx.path) return page;
  }
  return null;
}

const parentOf = (path: string): string => path.slice(0, path.lastIndexOf('/'));

/**
 * Exceptions of libraries as problems. Only 4xx of the body parsers and of Koa are taken over, by status: their
 * messages may quote the body, so they are neither shown nor logged.
 */
export function asProblem(thrown: unknown): Problem {
  if (isProblem(thrown)) return thrown;
  const name = byStatus.get(statusOf(thrown));
  if (name !== undefined) return problem(name, sentences[name] ?? {});
  return problem('internal', { cause: thrown, detail: 'The server could not do this. Nothing more is known here.' });
}

const byStatus: ReadonlyMap<number | undefined, ProblemName> = new Map<number, ProblemName>([
  [400, 'bad-request'],
  [408, 'timeout'],
  [413, 'too-large'],
  [415, 'unsupported-media-type'],
  // formidable: an unknown transfer encoding.
  [501, 'bad-request'],
]);

const sentences: Partial<Record<ProblemName, string>> = {
  'bad-request': 'The body cannot be read.',
  'too-large': 'The body is larger than this endpoint takes.',
};

/** formidable: the client has broken off. */
const aborted = 1002;

/** formidable has `httpCode`, http-errors `status`; a broken connection is caused by the client. */
function statusOf(thrown: unknown): number | undefined {
  if (typeof thrown !== 'object' || thrown === null) return undefined;
  const { status, statusCode, httpCode, code } = thrown as Readonly<Record<string, unknown>>;
  if (code === 'ECONNABORTED' || code === 'ECONNRESET' || code === aborted) return 400;
  return [status, statusCode, httpCode].find((value) => typeof value === 'number');
}

/** RFC 9457, with the request id. The error page and the toast are made from it as well, under a title of our own. */
interface ProblemDocument {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly requestId: string;
  readonly errors?: readonly InvalidPlace[];
  /** Pages that may have been meant. */
  readonly instead?: readonly PageLink[];
}

export function problemDocument(problem: Problem, requestId: string): ProblemDocument {
  const { title: sentence, http } = classOf(problem);
  const { detail = `${sentence}.`, errors, instead } = problem.details;
  return {
    type: 'about:blank',
    // For this type, the status phrase (RFC 9457 §4.2.1).
    title: STATUS_CODES[http] ?? sentence,
    status: http,
    detail,
    requestId,
    ...(errors === undefined || errors.length === 0 ? {} : { errors }),
    ...(instead === undefined ? {} : { instead }),
  };
}
