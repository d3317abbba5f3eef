import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { findCommand, readCommandLine } from '../../../core/cli/command-line.js';
import { setupCommands } from '../../../plugins/setup/index.js';

/** What a command of the setup prints, as it is typed. Rejects as the command does. */
export async function setup(cwd: string, ...words: readonly string[]): Promise<string> {
  const said: string[] = [];
  const found = findCommand(setupCommands, readCommandLine(words));
  if (found === undefined) throw new Error(`there is no command ${words.join(' ')}`);
  await found.command.run(found.call, { cwd, env: {}, print: (text) => void said.push(text) });
  return said.join('\n');
}

/** What `init example.org` writes. */
export const firstFiles: readonly string[] = [
  'dkim/example.org.ed1.pem',
  'dkim/example.org.rsa1.pem',
  'postern.json5',
  'postern.service',
];

export async function filesIn(folder: string): Promise<readonly string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map(({ parentPath, name }) => join(parentPath, name).slice(folder.length + 1)).toSorted();
}
