import { z } from 'zod';
import type { Command } from '../../core/cli/command.js';
import type { OwnerCall } from '../../core/contracts/server.js';
import { pluralize } from '../../core/text/format.js';
import { parseAddress } from '../../core/mime/address.js';
import { startError } from '../../core/problem.js';

const usage = ['postern mailbox remove NAME    remove a mailbox with all its messages; its user must be gone'] as const;

const Answer = z.object({ folders: z.array(z.object({ total: z.number() })) });
const ProblemAnswer = z.object({ title: z.string().optional(), detail: z.string().optional() });

/** `postern mailbox …`. Calls the running server, which knows the mailboxes in use. */
export const mailboxCommand: Command<unknown> = {
  name: 'mailbox',
  summary: 'Mailboxes: remove one whose user is gone',
  usage,
  async run({ args: [word, name, ...rest], owner, terminal }) {
    if (word !== 'remove' || name === undefined || rest.length > 0) {
      throw startError(['Usage:', ...usage.map((line) => `  ${line}`)].join('\n'));
    }
    if (owner === undefined) throw startError('No server runs on this data folder. Start it, then remove the mailbox.');
    const { local, domain } = parseAddress(name);
    const path = `/store/${encodeURIComponent(domain)}/${encodeURIComponent(local)}`;
    if (terminal.interactive) {
      const { folders } = Answer.parse(await answered(owner, 'GET', path));
      const messages = pluralize(
        folders.reduce((sum, { total }) => sum + total, 0),
        'message',
      );
      const answer = await terminal.ask(`Remove the mailbox ${name} with ${messages} permanently? Type yes: `);
      if (answer.trim().toLowerCase() !== 'yes') throw startError('Nothing was removed.');
    }
    await answered(owner, 'DELETE', path);
    terminal.print(`The mailbox ${name} was removed.`);
  },
};

async function answered(owner: OwnerCall, method: 'GET' | 'DELETE', path: string): Promise<unknown> {
  const { status, body } = await owner(method, path);
  if (status < 400) return body;
  const told = ProblemAnswer.safeParse(body).data;
  throw startError(told?.detail ?? told?.title ?? `The running server refused this with status ${status}.`);
}
