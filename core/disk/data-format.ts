import { join } from 'node:path';
import { z } from 'zod';
import { openDocument } from './document.js';
import { version } from '../host/installation.js';
import { startError } from '../problem.js';

/** Raised when what is on the disk changes so that an older version could not go on with it; see docs/upgrading.md. */
export const dataFormat = 1;

/** `format.json`: what the folder is like, and which version was there last. */
const Format = z.object({ format: z.int().min(1), version: z.string().min(1) });

/** Opens what a folder says of itself; one that says nothing is new, or older than the file. */
async function openFormat(data: string) {
  const file = join(data, 'format.json');
  const written = await openDocument({ file, schema: Format, initial: { format: dataFormat, version: '' } });
  const found = written.data;
  if (found.format <= dataFormat) return written;
  throw startError(
    `The data folder ${data} was last used by Postern ${found.version}, in format ${found.format}; this is ${version}, which knows formats up to ${dataFormat}. Start that version or a newer one, or restore the copy from before the upgrade.`,
  );
}

/** Throws a start error when a newer version has written what this one does not know. */
export async function checkFormat(data: string): Promise<void> {
  await openFormat(data);
}

/** For the owner of the folder: notes that this version was here. */
export async function noteFormat(data: string): Promise<void> {
  const written = await openFormat(data);
  if (written.data.format === dataFormat && written.data.version === version) return;
  await written.update(() => ({ format: dataFormat, version }));
}
