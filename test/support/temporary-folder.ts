import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** What of a test or suite context is needed here: something that runs when it ends. */
export interface Ending {
  after(release: () => void | Promise<void>): void;
}

/** An empty folder that is gone when the test ends. */
export async function temporaryFolder(test: Ending): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'postern-test-'));
  test.after(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }));
  return folder;
}
