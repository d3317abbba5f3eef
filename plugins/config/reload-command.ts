import { z } from 'zod';
import { answered, type Command, runningServer } from '../../core/cli/command.js';
import { usageError } from '../../core/problem.js';

const usage = [
  'postern reload [--dry-run] [--json]   apply the changed configuration files to the running server',
] as const;

const Answer = z.looseObject({
  changed: z.array(z.string()),
  restartRequired: z.array(z.string()),
  failed: z.array(z.object({ plugin: z.string(), why: z.string() })),
});

/** `postern reload`: all or nothing, as `POST /config/reload`. */
export const reloadCommand: Command<unknown> = {
  name: 'reload',
  summary: 'Apply the changed configuration files to the running server',
  usage,
  flags: ['json', 'dry-run'],
  async run({ args, flags, owner, terminal }) {
    if (args.length > 0) throw usageError(usage);
    const dryRun = flags?.has('dry-run') === true;
    const answer = answered(await runningServer(owner)('POST', '/config/reload', { dryRun }), Answer);
    if (flags?.has('json') === true) {
      terminal.print(JSON.stringify(answer, null, 2));
      return;
    }
    const { changed, restartRequired, failed } = answer;
    if (changed.length + restartRequired.length + failed.length === 0) terminal.print('Nothing has changed.');
    for (const key of changed) terminal.print(`${dryRun ? 'Would change' : 'In force'}: ${key}`);
    for (const key of restartRequired) terminal.print(`Needs a restart: ${key}`);
    for (const { plugin, why } of failed) terminal.print(`Plugin ${plugin} failed again: ${why}`);
  },
};
