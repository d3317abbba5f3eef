import { uniqueIdPattern } from '../../core/disk/id.js';
import { filesNamed, type OwnEntry, watchFolder } from '../../core/host/unknown-entries.js';
import type { PluginContext } from '../../core/plugin.js';
import { isOwnCacheFile } from './cache/file-sweep.js';
import { sentNoteNames } from './drafts/draft-sending.js';

/** Reports unknown entries in the store's own folders. */
export function watchStoreFolders(data: string, context: PluginContext): void {
  const cache = { cache: isFolderOfCache, 'cache/folders': isOwnCacheFile };
  watchFolder('cache', data, cache, context);
  watchFolder('drafts', data, { drafts: filesNamed(uniqueIdPattern, ...sentNoteNames) }, context);
}

const isFolderOfCache: OwnEntry = (entry) => entry.isDirectory() && entry.name === 'folders';
