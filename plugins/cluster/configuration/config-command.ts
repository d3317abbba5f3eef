import { readdir, readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { answered, type CommandInput, runningServer } from '../../../core/cli/command.js';
import { isMissing } from '../../../core/disk/fault.js';
import { startError, usageError } from '../../../core/problem.js';
import { printable } from '../../../core/text/format.js';
import { SetAnswer, SetNumber, SetsAnswer } from './set-answers.js';

export const configUsage = [
  'postern cluster config push FILE... [--json]            keep files, or those of a folder, as a new set',
  'postern cluster config list [--json]                    the sets',
  'postern cluster config show N [--json]                  the files of a set; secrets are masked',
  'postern cluster config use N [--json]                   all nodes apply a set, one after the other',
] as const;

const path = '/cluster/configuration';

/** What `postern cluster config …` does, by the running server. @throws usage error */
export function configAction(input: CommandInput<unknown>, words: readonly string[]): () => Promise<void> {
  const [action = '', ...rest] = words;
  const [number = ''] = rest;
  const isNumber = rest.length === 1 && /^\d{1,9}$/.test(number);
  if (Object.keys(input.values).length > 0 || input.flags?.has('dry-run') === true) throw usageError(configUsage);
  if (action === 'push' && rest.length > 0) return () => push(input, rest);
  if (action === 'list' && rest.length === 0) return () => list(input);
  if (action === 'show' && isNumber) return () => show(input, number);
  if (action === 'use' && isNumber) return () => use(input, Number(number));
  throw usageError(configUsage);
}

function say({ terminal, flags }: CommandInput<unknown>, answer: object, ...lines: readonly string[]): void {
  if (flags?.has('json') === true) terminal.print(JSON.stringify(answer, null, 2));
  else for (const line of lines) terminal.print(printable(line));
}

async function push(input: CommandInput<unknown>, paths: readonly string[]): Promise<void> {
  const owner = runningServer(input.owner);
  const files = (await Promise.all(paths.map(filesAt))).flat();
  const { set } = answered(await owner('POST', path, { files }), SetNumber);
  const names = files.map(({ name }) => name).join(', ');
  say(input, { set }, `Set ${set}: ${names}`, `No node applies it yet: postern cluster config use ${set}`);
}

interface NamedText {
  readonly name: string;
  readonly text: string;
}

/** A file, or the configuration files of a folder, named from there. */
async function filesAt(given: string): Promise<readonly NamedText[]> {
  try {
    if (!(await stat(given)).isDirectory()) return [{ name: basename(given), text: await readFile(given, 'utf8') }];
    const names = (await readdir(given, { recursive: true })).filter((name) => /^[^.].*\.json5?$/.test(name)).sort();
    if (names.length === 0) throw startError(`${given} has no .json5 file.`);
    return await Promise.all(names.map(async (name) => ({ name, text: await readFile(join(given, name), 'utf8') })));
  } catch (error) {
    if (isMissing(error)) throw startError(`There is no ${given}.`);
    throw error;
  }
}

async function use(input: CommandInput<unknown>, set: number): Promise<void> {
  answered(await runningServer(input.owner)('POST', `${path}/use`, { set }), SetNumber);
  say(input, { set }, `The nodes apply set ${set}, one after the other: postern cluster status`);
}

async function show(input: CommandInput<unknown>, number: string): Promise<void> {
  const set = answered(await runningServer(input.owner)('GET', `${path}/${number}`), SetAnswer);
  const lines = set.files.flatMap(({ name, text }) => [`// ${name}`, ...text.trimEnd().split('\n'), '']);
  say(input, set, ...lines);
}

async function list(input: CommandInput<unknown>): Promise<void> {
  const answer = answered(await runningServer(input.owner)('GET', path), SetsAnswer);
  const lines = answer.sets.map(
    ({ number, at, by, files, current }) =>
      `${number}${current ? '  in use' : ''}  ${at}  ${by ?? 'unknown'}  ${files.join(', ')}`,
  );
  say(input, answer, ...(lines.length === 0 ? ['There is no set yet: postern cluster config push FILE...'] : lines));
}
