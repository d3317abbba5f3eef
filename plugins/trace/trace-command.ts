import { z } from 'zod';
import { answered, type Command, runningServer } from '../../core/cli/command.js';
import { usageError } from '../../core/problem.js';
import { printable } from '../../core/text/format.js';

const usage = ['postern trace ADDRESS|ID [--json]   messages of an address, or each step of one message'] as const;

const List = z.object({
  items: z.array(
    z.looseObject({
      id: z.string().nullable(),
      session: z.string(),
      at: z.string(),
      sender: z.string(),
      recipients: z.array(z.string()),
      states: z.array(z.string()),
    }),
  ),
});
const Traces = z.object({
  traces: z.array(
    z.looseObject({ steps: z.array(z.looseObject({ at: z.string(), what: z.string(), detail: z.string() })) }),
  ),
});

/** `postern trace …`: the pages `/trace` in the terminal. */
export const traceCommand: Command<unknown> = {
  name: 'trace',
  summary: 'The history of a message: by address, Message-ID, or id of a message, queue entry or session',
  usage,
  flags: ['json'],
  async run({ args: [text, ...rest], flags, owner, terminal }) {
    if (text === undefined || rest.length > 0) throw usageError(usage);
    const server = runningServer(owner);
    const list = answered(await server('GET', `/trace?address=${encodeURIComponent(text)}`), List);
    const [only, ...others] = list.items;
    const id = others.length > 0 ? undefined : (only?.id ?? only?.session);
    const found = id === undefined ? list : answered(await server('GET', `/trace/${encodeURIComponent(id)}`), Traces);
    if (flags?.has('json') === true) terminal.print(JSON.stringify(found, null, 2));
    else if ('traces' in found) {
      for (const { at, what, detail } of found.traces.flatMap(({ steps }) => steps))
        terminal.print(printable(`${at}  ${what.padEnd(10)}  ${detail}`));
    } else if (found.items.length === 0) terminal.print('Nothing is known of it: it is too old, or was never here.');
    else for (const item of found.items) terminal.print(lineOf(item));
  },
};

function lineOf({ id, session, at, sender, recipients, states }: z.output<typeof List>['items'][number]): string {
  const [first = '-', ...others] = recipients;
  const to = others.length === 0 ? first : `${first} (+${others.length})`;
  return printable(`${at}  ${states.join(', ')}  <${sender}> → ${to}  ${id ?? session}`);
}
