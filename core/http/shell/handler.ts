import { problem } from '../../problem.js';
import { runAs } from '../../watchdog/running-code.js';
import {
  askToConfirm,
  asObject,
  confirmationView,
  isResponse,
  namesTag,
  unconfirmed,
  writeResponse,
} from '../response.js';
import type { HandlerInput, Response } from '../endpoint.js';
import type { Context, ExchangeState, Next, Middleware } from '../exchange.js';
import { clientPath, turns } from '../../turns.js';
import type { Notices, Pages } from '../pages.js';
import type { ClientPlaces } from './client-places.js';

/** A form of an endpoint with a question gets the confirmation page first. */
export function confirmation(pages: Pages): Middleware {
  return function confirm(ctx: Context, next: Next) {
    const { matched, input, representation, body } = ctx.state;
    const question = matched.route.endpoint.confirm;
    if (question === undefined || input.request.confirmed) return next(ctx);
    if (representation !== 'html') throw unconfirmed(question);
    askToConfirm(ctx, question, body.kind === 'form' ? body.fields : {}, pages);
    return Promise.resolve();
  };
}

/** Calls the handler of the endpoint and writes what it returns; a page when it is the client's turn, where others wait. */
export function handler(pages: Pages, notices: Notices, places: ClientPlaces): Middleware {
  return async function handle(ctx: Context) {
    const { exchange, matched, input, representation } = ctx.state;
    const { endpoint, mark } = matched.route;
    if (input.request.ifMatch !== undefined) await refuseOldTag(ctx.state);
    const result = await runAs(mark, () => endpoint.handle(input));
    const response: Response = isResponse(result) ? result : { postern: 'response', model: result };
    exchange.audit = response.audit;
    exchange.asked = endpoint.changes === false || isQuestion(response) || isDryRun(input);
    const pageModel = () => endpoint.page?.(response.model, input) ?? asObject(response.model);
    if (response.stream !== undefined || response.bytes !== undefined) await places.takeStream(ctx, response);
    if (representation === 'html' && turns.isBusy) await turns.wait(clientPath(exchange.remoteAddress));
    await writeResponse(ctx, response, pageModel, { pages, notices });
  };
}

/** A page that only asks; the names of those of plugins end in `question.njk`. */
const isQuestion = ({ view }: Response): boolean =>
  view === confirmationView || view?.endsWith('question.njk') === true;

const isDryRun = ({ query, body }: HandlerInput<unknown, unknown, unknown>): boolean =>
  [query, body].some((given) => (Object(given) as { dryRun?: unknown }).dryRun === true);

/** RFC 9110 §13.1.1, for endpoints that can tell their tag beforehand. */
async function refuseOldTag({ matched: { route }, input }: ExchangeState): Promise<void> {
  const { ifMatch } = input.request;
  if (ifMatch === undefined || route.endpoint.etag === undefined) return;
  const tag = await route.endpoint.etag(input);
  if (tag !== undefined && namesTag(ifMatch, tag)) return;
  throw problem('precondition-failed', 'It has changed since you read it. Read it again, then repeat your change.');
}
