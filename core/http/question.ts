import { problem, type Problem } from '../problem.js';
import { type EndpointRequest, respond, type Response } from './endpoint.js';

export const confirmationView = 'confirm.njk';

export interface Question {
  readonly question: string;
  /** What the form said, to be said again. */
  readonly fields: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly label: string;
  readonly back: string;
}

/** What a form gets that is no page's, and does not say that it means it. */
export const unconfirmed = (question: string): Problem =>
  problem('invalid', {
    detail: `${question} Send confirm=yes to do it.`,
    errors: [{ pointer: '/confirm', message: 'must be yes' }],
  });

/** A page that says what is about to happen, and asks. For forms only; scripts have `dryRun`. */
export function ask(request: EndpointRequest, { question, fields, label, back }: Question): Response<never> {
  if (request.representation !== 'html') throw unconfirmed(question);
  const sent = Object.entries(fields).flatMap(([name, value]) =>
    [value ?? []].flat().map((text) => ({ name, value: text })),
  );
  const model = { question, fields: sent, label, back, action: request.listPath };
  // The endpoint's own model is what scripts get, and those are never asked.
  return respond({ view: confirmationView, model }) as unknown as Response<never>;
}
