import { z } from 'zod';

export const StoreOptions = z.strictObject({
  root: z
    .string()
    .min(1)
    .default('mail')
    .describe(
      'Folder of the mailboxes, `<root>/<domain>/<user>/`. A relative path is below the data folder; it must be on the same file system.',
    ),
  cache: z
    .strictObject({
      memoryBytes: z
        .int()
        .min(2 ** 20)
        .default(64 * 2 ** 20)
        .describe('Memory for what is known of folders: some 12 MB for 100,000 messages.'),
      diskBytes: z
        .int()
        .min(0)
        .default(2 ** 30)
        .describe('Files in `cache/folders` of the data folder; above it, the oldest go at the next start.'),
    })
    .prefault({})
    .describe('What is kept of folders, so that large ones are not read again and again.'),
});
export type StoreSettings = z.output<typeof StoreOptions>;
