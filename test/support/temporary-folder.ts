import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { atEnd, type Ending } from './ending.js';

export type { Ending } from './ending.js';

/** An empty folder that is gone when the test has ended. */
export async function temporaryFolder(test: Ending): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'postern-test-'));
  atEnd(test, () => rm(folder, { recursive: true, force: true, maxRetries: 5 }));
  return folder;
}
