import type { Context } from './exchange.js';
import type { Pages } from './page.js';
import type { Fields } from './request-target.js';
import { wayBack } from './way-back.js';

/** Asks on a page of its own before a destructive form does its work; the form's fields travel along. */
export function askToConfirm(ctx: Context, question: string, fields: Fields, pages: Pages): void {
  const model = {
    question,
    action: ctx.url,
    fields: Object.entries(fields).flatMap(([name, value]) => [value].flat().map((text) => ({ name, value: text }))),
    label: 'Yes, do it',
    back: wayBack(ctx) ?? null,
  };
  ctx.state.exchange.asked = true;
  ctx.set('Cache-Control', 'no-store');
  ctx.set('Content-Type', 'text/html; charset=utf-8');
  ctx.body = pages.render(ctx, 'confirm.njk', 'Please confirm', model);
}
