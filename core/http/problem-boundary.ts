import { classOf, problem, type Problem } from '../problem.js';
import type { Log } from '../log/log.js';
import { wantsFragment, type Context, type Next, type Stage } from './exchange.js';
import { asProblem } from './failure.js';
import { prefersHtml } from './negotiation.js';
import type { Pages } from './page.js';
import { problemDocument } from './problem-document.js';
import { wayBack } from './way-back.js';

/** Everything that is thrown becomes an answer here, as JSON, page or toast. */
export function problemBoundary(pages: Pages, log: Log): Stage {
  return async function answerProblems(ctx: Context, next: Next) {
    try {
      await next();
      if (ctx.body === undefined && ctx.status === 404) throw problem('not-found');
    } catch (thrown) {
      answer(ctx, asProblem(thrown), pages, log);
    }
    // A body that nobody read would be taken for the next request.
    if (!ctx.req.complete) ctx.set('Connection', 'close');
  };
}

function answer(ctx: Context, found: Problem, pages: Pages, log: Log): void {
  const { id, route } = ctx.state.exchange;
  if (classOf(found).http >= 500) {
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
    const html = tryRender(ctx, { problem: shown, back: backOf(ctx, pages) }, pages, log);
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

/** A page that fails must not fail again while it says so. */
function tryRender(ctx: Context, model: object, pages: Pages, log: Log): string | undefined {
  try {
    return wantsFragment(ctx) ? pages.renderPart('toast.njk', model) : pages.render(ctx, 'error.njk', 'Error', model);
  } catch (error) {
    log.error({ requestId: ctx.state.exchange.id, err: error }, 'the error page failed');
    return undefined;
  }
}

/** The page that one came from, else the nearest one on the way up; never an address that is no page for this account. */
function backOf(ctx: Context, pages: Pages): string | null {
  const back = wayBack(ctx);
  if (back !== undefined && back !== ctx.url && pages.may(ctx, back)) return back;
  for (let above = parentOf(ctx.path); above !== ''; above = parentOf(above)) {
    const page = pages.may(ctx, above) ? above : pages.below(ctx, above);
    if (page !== undefined && page !== ctx.path) return page;
  }
  return null;
}

const parentOf = (path: string): string => path.slice(0, path.lastIndexOf('/'));
