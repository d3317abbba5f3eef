import { z } from 'zod';
import { answered, type Command, runningServer } from '../../core/cli/command.js';
import { startError, usageError } from '../../core/problem.js';

const usage = [
  'postern status [--json]   health of the running server and its parts; exit status 1 when it is down',
] as const;

const Health = z.looseObject({
  status: z.string(),
  uptime: z.number(),
  versions: z.record(z.string(), z.string()),
  components: z.record(z.string(), z.looseObject({ status: z.string(), why: z.string().nullable() })),
});

/** `postern status`: `/health/extended` in the terminal. */
export const statusCommand: Command<unknown> = {
  name: 'status',
  summary: 'Health of the running server and its parts',
  usage,
  flags: ['json'],
  async run({ args, flags, owner, terminal }) {
    if (args.length > 0) throw usageError(usage);
    const { status: code, body } = await runningServer(owner)('GET', '/health/extended');
    // 503 is an answer, too: the server is down.
    const health = answered({ status: code === 503 ? 200 : code, body }, Health);
    if (flags?.has('json') === true) terminal.print(JSON.stringify(health, null, 2));
    else {
      const { status, uptime, versions, components } = health;
      terminal.print(`${status}, Postern ${versions['postern'] ?? ''}, up ${Math.round(uptime)} s`);
      const width = Math.max(...Object.keys(components).map(({ length }) => length));
      for (const [name, { status: state, why }] of Object.entries(components))
        terminal.print(`  ${name.padEnd(width)}  ${state}${why === null ? '' : `: ${why}`}`);
    }
    if (health.status === 'DOWN') throw startError('The server is down.');
  },
};
