import { z } from 'zod';
import { answered, type Command, confirm, runningServer } from '../../core/cli/command.js';
import { pluralize } from '../../core/text/format.js';
import { parseAddress } from '../../core/mime/address.js';
import { usageError } from '../../core/problem.js';

const usage = [
  'postern mailbox remove NAME [--json]   remove a mailbox with all its messages; its user must be gone',
] as const;

const Answer = z.object({ folders: z.array(z.object({ total: z.number() })) });

/** `postern mailbox …`. Calls the running server, which knows the mailboxes in use. */
export const mailboxCommand: Command<unknown> = {
  name: 'mailbox',
  summary: 'Mailboxes: remove one whose user is gone',
  usage,
  flags: ['json'],
  async run({ args: [word, name, ...rest], flags, owner, terminal }) {
    if (word !== 'remove' || name === undefined || rest.length > 0) {
      throw usageError(usage);
    }
    const server = runningServer(owner);
    const { local, domain } = parseAddress(name);
    const path = `/store/${encodeURIComponent(domain)}/${encodeURIComponent(local)}`;
    if (terminal.interactive) {
      const { folders } = answered(await server('GET', path), Answer);
      const messages = pluralize(
        folders.reduce((sum, { total }) => sum + total, 0),
        'message',
      );
      await confirm(terminal, `Remove the mailbox ${name} with ${messages} permanently?`);
    }
    answered(await server('DELETE', path), z.unknown());
    if (flags?.has('json') === true) terminal.print(JSON.stringify({ removed: `${local}@${domain}` }, null, 2));
    else terminal.print(`The mailbox ${name} was removed.`);
  },
};
