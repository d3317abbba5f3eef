import { type EndpointRequest, respond, type Response } from './endpoint.js';

export const confirmationView = 'confirm.njk';

export interface Question {
  readonly question: string;
  /** What the form said, to be said again. */
  readonly fields: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly label: string;
  readonly back: string;
}

/** A page that says what is about to happen, and asks. For forms only; scripts have `dryRun`. */
export function ask(request: EndpointRequest, { question, fields, label, back }: Question): Response<never> {
  const sent = Object.entries(fields).flatMap(([name, value]) =>
    [value ?? []].flat().map((text) => ({ name, value: text })),
  );
  const model = { question, fields: sent, label, back, action: request.listPath };
  // The endpoint's own model is what scripts get, and those are never asked.
  return respond({ view: confirmationView, model }) as unknown as Response<never>;
}
