import { z } from 'zod';

const Listed = z.object({
  number: z.int(),
  at: z.iso.datetime(),
  by: z.string().nullable(),
  files: z.array(z.string()),
  current: z.boolean().describe('Whether it is in use'),
});
export const SetsAnswer = z.object({ sets: z.array(Listed).describe('The newest first') });
export const SetAnswer = Listed.extend({
  files: z.array(z.object({ name: z.string(), text: z.string().describe('Secrets are masked') })),
});
export const SetNumber = z.object({ set: z.int() });
