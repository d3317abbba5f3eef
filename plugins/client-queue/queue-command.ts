import { z } from 'zod';
import type { Command } from '../../core/cli/command.js';
import { pluralize } from '../../core/text/format.js';
import { startError } from '../../core/problem.js';
import type { ClientQueueSettings } from './options.js';

const usage = [
  'postern queue recover [--dry-run]  make entries again from messages in quarantine whose envelope is known',
] as const;

const Answer = z.object({
  recovered: z.number(),
  left: z.array(z.object({ name: z.string(), reason: z.string() })),
});
const Refusal = z.object({ title: z.string(), detail: z.string().optional() });

/** `postern queue …`. The running server does it: the queue is in its memory. */
export const queueCommand: Command<ClientQueueSettings> = {
  name: 'queue',
  summary: 'Quarantined messages of the queue: recreate their entries',
  usage,
  flags: ['dry-run'],
  async run({ args, flags, owner, terminal }) {
    const [word, ...rest] = args;
    if (word !== 'recover' || rest.length > 0) {
      throw startError(['Usage:', ...usage.map((line) => `  ${line}`)].join('\n'));
    }
    if (owner === undefined) throw startError('No server runs over this data folder. Start it first: postern start');
    const dryRun = flags?.has('dry-run') === true;
    const { status, body } = await owner('POST', '/client/queue/recover', { dryRun });
    const answer = Answer.safeParse(body).data;
    if (status !== 200 || answer === undefined) {
      const refusal = Refusal.safeParse(body).data;
      throw startError(`The server refused (${status}): ${refusal?.detail ?? refusal?.title ?? 'no reason given'}`);
    }
    const { recovered, left } = answer;
    const messages = pluralize(recovered, 'message');
    terminal.print(dryRun ? `${messages} can be queued again.` : `${messages} queued again.`);
    if (left.length > 0) terminal.print(`${pluralize(left.length, 'file')} left in quarantine:`);
    for (const { name, reason } of left) terminal.print(`  ${name}: ${reason}`);
  },
};
