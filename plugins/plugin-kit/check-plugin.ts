import type { StartOptions } from '../../core/main.js';
import type { CommandEnvironment } from '../../core/cli/command.js';
import type { PluginOutline } from './plugin-outline.js';
import { runTrial, type Finding, type TrialReport } from './trial.js';

export interface CheckInput {
  /** File or folder of the plugin, or the name of a package. */
  readonly path: string;
  readonly options: StartOptions;
  readonly json: boolean;
}

/** `postern plugin check PATH`: tries the plugin and says what is wrong. Resolves with the exit status: 1 for a mistake. */
export async function checkPlugin({ path, options, json }: CheckInput, place: CommandEnvironment): Promise<number> {
  const report = await runTrial({ path, options, cwd: place.cwd, env: place.env });
  const ok = report.findings.every(({ severity }) => severity !== 'error');
  place.print(json ? JSON.stringify({ path, ok, ...report }, null, 2) : reportText(path, report));
  return ok ? 0 : 1;
}

/** The report for people. */
export function reportText(path: string, { plugins, findings }: TrialReport): string {
  const mistakes = findings.filter(({ severity }) => severity === 'error').length;
  const verdict = mistakes === 0 ? 'no mistakes found.' : mistakes === 1 ? 'a mistake.' : `${mistakes} mistakes.`;
  return [
    `${path}: ${verdict}`,
    ...findings.map(findingText),
    ...(mistakes === 0 ? plugins.flatMap(outlineText) : []),
  ].join('\n');
}

const findingText = ({ severity, place, message }: Finding): string =>
  `  ${severity.padEnd(8)} ${place === null ? '' : `${place}  `}${message.replaceAll('\n', '\n           ')}`;

function outlineText(plugin: PluginOutline): readonly string[] {
  const { name, needs, uses, provides, commands, hooks, targets, endpoints } = plugin;
  const lines: readonly (readonly [string, readonly string[]])[] = [
    ['needs', needs],
    ['uses', uses],
    ['provides', provides],
    ['commands', commands.map((command) => `postern ${command}`)],
    ['hooks', hooks.map(({ stage, phase, mode }) => `${stage} (${phase}${mode === 'shadow' ? ', shadow' : ''})`)],
    ['targets', targets],
    ['endpoints', endpoints.map(({ method, path, access }) => `${method} ${path} (${access})`)],
  ];
  return [
    `  ${name}`,
    ...lines.filter(([, list]) => list.length > 0).map(([key, list]) => `    ${key.padEnd(10)} ${list.join(', ')}`),
  ];
}
