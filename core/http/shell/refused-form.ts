import { classOf, isProblem } from '../../problem.js';
import { runAs } from '../../watchdog/running-code.js';
import type { AccessControl } from '../access.js';
import { bodyType, isForm } from '../body.js';
import { beginUse, endUse, type RefusedForm, type Response } from '../endpoint.js';
import { wantsFragment, type Context, type Next, type ReadBody } from '../exchange.js';
import { refillForm } from '../form-refill.js';
import { readInput } from '../input.js';
import type { Notices, Pages } from '../pages.js';
import { ownReferer, withParameter } from '../referer.js';
import type { Fields } from '../validation.js';
import { asObject, isResponse, writeResponse } from '../response.js';
import type { RouteTable } from '../routes.js';

interface RefusedFormsDeps {
  readonly table: () => RouteTable;
  readonly access: AccessControl;
  readonly pages: Pages;
  readonly notices: Notices;
}

/** Shows a refused form again, with the entered values and the errors. */
export class RefusedForms {
  readonly #deps: RefusedFormsDeps;

  constructor(deps: RefusedFormsDeps) {
    this.#deps = deps;
  }

  readonly showAgain = async (ctx: Context, next: Next): Promise<void> => {
    try {
      await next(ctx);
    } catch (error) {
      if (!isProblem(error)) throw error;
      const { exchange, matched, representation, input, body } = ctx.state;
      exchange.audit = error.details.audit;
      if (representation !== 'html') throw error;
      const { params, query, request } = input;
      const refused = { params, query, request, fields: fieldsOf(body), problem: error };
      const { again } = matched.route.endpoint;
      if (again !== undefined && error.problem === 'invalid') {
        const response = await again(refused);
        swapWholePage(ctx);
        await writeResponse(ctx, { ...response, status: 422 }, () => asObject(response.model), this.#deps);
      } else if (!(await this.#showFormAgain(ctx, refused))) throw error;
    }
  };

  /**
   * The page of a form, with the entered values and the errors: the page it came from, else the one at or near the
   * address of the form. False when this account may see none.
   */
  async #showFormAgain(ctx: Context, refused: RefusedForm<unknown, unknown>): Promise<boolean> {
    if (!['invalid', 'conflict'].includes(refused.problem.problem) || !isForm(bodyType(ctx))) return false;
    const near = this.#deps.table().pageNear(ctx.path)?.endpoint.path;
    const pages = new Set([ownReferer(ctx), ctx.url, near].filter((page) => page !== undefined));
    for (const page of pages) {
      const html = await this.#refilledPage(ctx, withParameter(page, 'notice', undefined), refused);
      if (html === undefined) continue;
      swapWholePage(ctx);
      ctx.status = classOf(refused.problem).http;
      ctx.set({ 'Cache-Control': 'no-store', 'Content-Type': 'text/html; charset=utf-8' });
      ctx.body = html;
      return true;
    }
    return false;
  }

  async #refilledPage(
    ctx: Context,
    page: string,
    { fields, problem: { details } }: RefusedForm<unknown, unknown>,
  ): Promise<string | undefined> {
    const { access, pages, table } = this.#deps;
    const [path = ''] = page.split('?', 1);
    const matched = table().find(path)?.routes.get('GET');
    if (matched?.route.template === undefined || !pages.may(ctx, path)) return undefined;
    const { endpoint, mark, plugin, template } = matched.route;
    if (ctx.state.exchange.forwarder !== undefined && endpoint.nodeOf === undefined) return undefined;
    const action = ctx.url;
    beginUse([endpoint]);
    try {
      // Views show links and filters of the requested address.
      ctx.url = page;
      const input = readInput(ctx, matched, {
        representation: 'html',
        body: { kind: 'none' },
        once: undefined,
        access,
      });
      const result = await runAs(mark, () => endpoint.handle(input));
      const { model, view }: Partial<Response> = isResponse(result) ? result : { model: result };
      const html = pages.render(
        ctx,
        view === undefined ? template : pages.resolve(plugin, view),
        endpoint.summary,
        endpoint.page?.(model, input) ?? asObject(model),
      );
      return await refillForm(String(html), { action, fields, details, page });
    } catch (error) {
      // The error that keeps the page from being shown is not the error of the form.
      if (isProblem(error)) return undefined;
      throw error;
    } finally {
      ctx.url = action;
      endUse([endpoint]);
    }
  }
}

/** Replaces the whole page, wherever htmx would have put the response of a successful form. */
function swapWholePage(ctx: Context): void {
  if (ctx.get('HX-Request') !== 'true') return;
  const target = wantsFragment(ctx) ? '#content' : 'body';
  ctx.set({ 'HX-Retarget': target, 'HX-Reswap': 'innerHTML', 'HX-Reselect': 'unset' });
}

const fieldsOf = (body: ReadBody): Fields => (body.kind === 'form' || body.kind === 'raw' ? body.fields : {});
