import type { Surroundings } from '../main.js';

/** What this person types to call the command: in a checkout, and wherever npm runs it, that is npx. */
export const programName = ({ env }: Pick<Surroundings, 'env'>): string =>
  env['npm_lifecycle_event'] === undefined ? 'postern' : 'npx postern';
