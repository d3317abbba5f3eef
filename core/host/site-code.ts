import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { WatchedCode } from '../contracts/server.js';
import type { SiteEntry } from './site-entry.js';
import { filesOf, findSitePlugin } from './site-files.js';

/** The code of the plugins of the site as it is now. Never rejects: what cannot be read is told apart from what can. */
export async function codeOf(entries: readonly SiteEntry[], folder: string): Promise<WatchedCode> {
  const folders = new Set<string>();
  const hash = createHash('sha256');
  for (const { from } of entries) {
    try {
      const { paths, fingerprint } = await filesOf(from, findSitePlugin(from, folder));
      hash.update(fingerprint);
      for (const path of paths) folders.add(dirname(path));
    } catch (error) {
      hash.update(error instanceof Error ? error.message : String(error));
      const place = resolve(folder, from);
      folders.add(dirname(place)).add(place);
    }
  }
  return { folders: [...folders].filter((path) => existsSync(path)), digest: hash.digest('hex') };
}
