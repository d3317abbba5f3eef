import { parentPort, type Transferable } from 'node:worker_threads';
import type { JobReply } from './worker-jobs.js';

/**
 * Answers jobs in a thread of `WorkerJobs`, which is ended when it exceeds its time or memory. To call when all modules are
 * loaded: the time limit starts.
 *
 * @param transfersOf parts of a result that are moved, not copied
 */
export function answerJobs<Result>(
  answer: (job: never) => Promise<Result>,
  transfersOf: (result: Result) => readonly Transferable[] = () => [],
): void {
  const replyTo = async (job: never): Promise<void> => {
    let reply: JobReply<Result>;
    try {
      reply = { ok: true, result: await answer(job) };
    } catch (error) {
      reply = { ok: false, error: error instanceof Error ? error.message : String(error) };
    }
    parentPort?.postMessage(reply, reply.ok ? transfersOf(reply.result) : []);
  };
  parentPort?.on('message', (job: unknown) => void replyTo(job as never));
  parentPort?.postMessage('ready', []);
}
