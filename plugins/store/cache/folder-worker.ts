import { parentPort } from 'node:worker_threads';
import { FolderCache } from './folder-cache.js';
import { FolderSearch } from './folder-search.js';
import type { FolderReply, FoldersTask, FolderTask } from './folder-task.js';

/** A message to the thread: a task with its number, or the closing of a site. */
export type WorkerMessage = { readonly number: number } & (
  { readonly task: FolderTask | FoldersTask } | { readonly close: FolderTask['site'] }
);

/** Folders are read in this thread: disk waits and scans of a hundred thousand names block no other work. */
const caches = new Map<string, FolderCache>();

function keyOf({ root, files }: FolderTask['site']): string {
  return `${root}\n${files ?? ''}`;
}

function cacheOf(site: FolderTask['site']): FolderCache {
  const known = caches.get(keyOf(site));
  const cache = known ?? new FolderCache(site);
  if (known === undefined) caches.set(keyOf(site), cache);
  return cache;
}

async function reply(message: WorkerMessage): Promise<FolderReply> {
  try {
    if ('close' in message) {
      caches.get(keyOf(message.close))?.close();
      caches.delete(keyOf(message.close));
      return { ok: true, answer: null };
    }
    const { task } = message;
    const cache = cacheOf(task.site);
    if ('search' in task) return { ok: true, answer: await new FolderSearch(cache, task.search, task.now).run() };
    return { ok: true, answer: (await cache.answer(task.folder, task.question, task.now)) ?? null };
  } catch (error) {
    return { ok: false, error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }
}

parentPort?.on('message', (message: WorkerMessage) => {
  void reply(message).then((reply) => parentPort?.postMessage({ number: message.number, reply }, transfersOf(reply)));
});

function transfersOf(reply: FolderReply): ArrayBuffer[] {
  if (!reply.ok || reply.answer === null || !('ids' in reply.answer)) return [];
  return reply.answer.ids.map((ids) => ids.buffer);
}
