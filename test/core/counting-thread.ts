import { answerJobs } from '../../core/worker-thread.js';

/** A thread for tests: what it is asked to do. */
export type CountingJob =
  | { readonly work: 'echo'; readonly text: string }
  | { readonly work: 'spin'; readonly ms: number }
  | { readonly work: 'fill' | 'throw' | 'exit' };

answerJobs((job: CountingJob): Promise<string> => {
  if (job.work === 'echo') return Promise.resolve(job.text);
  if (job.work === 'throw') return Promise.reject(new Error('as asked'));
  if (job.work === 'exit') process.exit(1);
  const until = job.work === 'spin' ? Date.now() + job.ms : Infinity;
  const filled: number[][] = [];
  while (Date.now() < until) if (job.work === 'fill') filled.push(Array.from({ length: 10_000 }, (_, n) => n));
  return Promise.resolve(`spun ${filled.length}`);
});
