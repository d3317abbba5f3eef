import { synopsis, type BuiltInCommand } from './commands.js';
import type { Plugin } from '../plugin.js';

/** What `postern --help` prints; plugins add their commands. */
export function usage(builtIn: readonly BuiltInCommand[], plugins: readonly Plugin[]): string {
  const commands = plugins.flatMap((plugin) => plugin.commands);
  const listed = [...builtIn.map((command) => ({ name: synopsis(command), summary: command.summary })), ...commands];
  const width = Math.max(...listed.map(({ name }) => name.length)) + 2;
  return [
    'Usage: postern COMMAND [OPTIONS]',
    '',
    'Commands',
    ...listed.map(({ name, summary }) => `  ${name.padEnd(width)}${summary}`),
    '',
    'Options',
    '  -c, --config FILE   configuration (JSON5); else POSTERN_CONFIG, ./postern.json5, /etc/postern/postern.json5',
    '  -d, --data DIR      data folder',
    '  --http-port N       port of the pages; 0 takes a free one',
    '  --smtp-port N       port of the first SMTP listener; 0 takes a free one',
    '  -v, --verbose       log to the terminal too, and print the plugins',
    '  -h, --help          this text',
    '  --version           the version',
    ...commands.flatMap(({ name, usage: lines }) => ['', `postern ${name}`, ...lines.map((line) => `  ${line}`)]),
  ].join('\n');
}
