import { problem, type Problem } from '../problem.js';
import { type EndpointRequest, respond, type Response } from './endpoint.js';
import type { Context } from './exchange.js';
import type { Pages } from './pages.js';
import type { Fields } from './validation.js';
import { ownReferer } from './referer.js';

/** The one confirmation page; always the server's own view. */
export const confirmationView = 'confirm.njk';

/** Answers a destructive form with the confirmation page, which carries the form's fields. */
export function askToConfirm(ctx: Context, question: string, fields: Fields, pages: Pages): void {
  const model = {
    question,
    action: ctx.url,
    fields: hiddenFields(fields),
    label: 'Confirm',
    back: ownReferer(ctx) ?? null,
  };
  ctx.state.exchange.asked = true;
  ctx.set('Cache-Control', 'no-store');
  ctx.set('Content-Type', 'text/html; charset=utf-8');
  ctx.body = pages.render(ctx, confirmationView, 'Please confirm', model);
}

interface Question {
  readonly question: string;
  /** The fields of the form, sent again with the confirmation. */
  readonly fields: SentFields;
  readonly label: string;
  readonly back: string;
}

/** Problem for a caller that asked for no page and did not send `confirm=yes`. */
export const unconfirmed = (question: string): Problem =>
  problem('invalid', {
    detail: `${question} Send confirm=yes to do it.`,
    errors: [{ pointer: '/confirm', message: 'must be yes' }],
  });

/** A handler's answer that asks for confirmation. For forms only; scripts have `dryRun`. */
export function ask(request: EndpointRequest, { question, fields, label, back }: Question): Response<never> {
  if (request.representation !== 'html') throw unconfirmed(question);
  const model = { question, fields: hiddenFields(fields), label, back, action: request.listPath };
  // The model type of the endpoint is for scripts, which never get this page.
  return respond({ view: confirmationView, model }) as unknown as Response<never>;
}

type SentFields = Readonly<Record<string, string | readonly string[] | undefined>>;

const hiddenFields = (fields: SentFields) =>
  Object.entries(fields).flatMap(([name, value]) => [value ?? []].flat().map((text) => ({ name, value: text })));
