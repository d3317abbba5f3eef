import { z } from 'zod';

export const StoreOptions = z.strictObject({
  root: z
    .string()
    .min(1)
    .default('mail')
    .describe(
      'Folder of the mailboxes, `<root>/<domain>/<user>/`. A relative path is below the data folder; it must be on the same file system.',
    ),
});
export type StoreSettings = z.output<typeof StoreOptions>;
