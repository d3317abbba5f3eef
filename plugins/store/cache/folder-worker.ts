import { parentPort } from 'node:worker_threads';
import { FolderCabinet } from './folder-cabinet.js';
import type { FolderReply, FolderTask } from './folder-task.js';

/** A message to the thread: a task with its number, or the closing of a site. */
export type WorkerMessage = { readonly number: number } & (
  { readonly task: FolderTask } | { readonly close: FolderTask['site'] }
);

/** Folders are read in this thread: disk waits and scans of a hundred thousand names block no other work. */
const cabinets = new Map<string, FolderCabinet>();

function keyOf({ root, files }: FolderTask['site']): string {
  return `${root}\n${files ?? ''}`;
}

function cabinetOf(site: FolderTask['site']): FolderCabinet {
  const known = cabinets.get(keyOf(site));
  const cabinet = known ?? new FolderCabinet(site);
  if (known === undefined) cabinets.set(keyOf(site), cabinet);
  return cabinet;
}

async function reply(message: WorkerMessage): Promise<FolderReply> {
  try {
    if ('close' in message) {
      cabinets.get(keyOf(message.close))?.close();
      cabinets.delete(keyOf(message.close));
      return { ok: true, answer: null };
    }
    const { site, folder, question, now } = message.task;
    return { ok: true, answer: (await cabinetOf(site).answer(folder, question, now)) ?? null };
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
