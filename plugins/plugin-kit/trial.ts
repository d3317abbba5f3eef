import { fork } from 'node:child_process';
import { rmSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { App } from '../../core/app.js';
import type { CommandEnvironment } from '../../core/cli/command.js';
import { withProgress } from '../../core/cli/terminal.js';
import { tokenIds } from '../../core/host/plugin-set.js';
import type { StartOptions } from '../../core/main.js';
import type { HookDescription } from '../../core/pipeline/hook.js';
import type { Plugin } from '../../core/plugin.js';

/** Steps of a trial, in order; each requires the one before. While one runs, and after it. */
const trialSteps = {
  load: ['Loading its code', 'its code was loaded'],
  configuration: ['Reading the configuration', 'the configuration was read'],
  setup: ['Running its setup', 'its setup ran'],
  hooks: ['Asking its hooks', 'its hooks were asked'],
  pages: ['Making its pages', 'its pages were made'],
  stop: ['Stopping it', 'it was stopped'],
} as const;
export type TrialStep = keyof typeof trialSteps;

/** A problem at the start or during use. */
export interface TrialFinding {
  /** A warning does not stop the server. */
  readonly severity: 'error' | 'warning';
  readonly step: TrialStep;
  /** In the folder of the plugin: `index.js:12:9`. */
  readonly place: string | null;
  readonly message: string;
}

export interface TrialReport {
  /** The tried plugins; empty when the trial failed before. */
  readonly plugins: readonly PluginOutline[];
  readonly findings: readonly TrialFinding[];
  /** Response of `GET /pipeline` when no plugin was named. */
  readonly pipeline?: unknown;
}

export interface TrialRequest {
  /** File or folder of the plugin, or the name of a package; null tries the configuration unchanged. */
  readonly path: string | null;
  readonly options: StartOptions;
  readonly cwd: string;
  readonly env: CommandEnvironment['env'];
  /** Temporary data folder. */
  readonly scratch: string;
}

/** Messages of the trial process. */
export type TrialMessage = { readonly step: TrialStep } | { readonly report: TrialReport };

const defaultLimitMs = 60_000;

/**
 * Starts a server with the plugin in a process of its own, without listeners and network, with an empty data folder,
 * and stops it. A hanging process is terminated, and a crash is reported.
 */
export async function runTrial(
  request: Omit<TrialRequest, 'scratch'>,
  limitMs: number = defaultLimitMs,
): Promise<TrialReport> {
  const scratch = await mkdtemp(join(tmpdir(), 'postern-check-'));
  try {
    return await withProgress(trialSteps.load[0], (show) =>
      inItsProcess({ ...request, scratch }, limitMs, (step) => show(trialSteps[step][0])),
    );
  } finally {
    await rm(scratch, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function inItsProcess(
  request: TrialRequest,
  limitMs: number,
  begun: (step: TrialStep) => void,
): Promise<TrialReport> {
  // Its output goes to stderr: stdout is for the report.
  const child = fork(new URL('./trial-process.js', import.meta.url), { stdio: ['ignore', 2, 2, 'ipc'] });
  const takeAlong = (signal: NodeJS.Signals): void => {
    child.kill('SIGKILL');
    rmSync(request.scratch, { recursive: true, force: true });
    process.kill(process.pid, signal);
  };
  process.once('SIGINT', takeAlong).once('SIGTERM', takeAlong);
  let step: TrialStep = 'load';
  const ended = new Promise<TrialReport>((resolve) => {
    const end = (message: string) => resolve(failed(step, `${message} while ${trialSteps[step][1]}`));
    const limit = setTimeout(() => end(`It did not come to an end within ${limitMs / 1000} seconds`), limitMs);
    child.on('message', (message: TrialMessage) => {
      if ('report' in message) resolve(message.report);
      else begun((step = message.step));
    });
    child.on('exit', (code, signal) => {
      clearTimeout(limit);
      end(`It ended its process (${signal ?? `exit status ${code}`})`);
    });
  });
  child.send(request);
  const report = await ended;
  process.off('SIGINT', takeAlong).off('SIGTERM', takeAlong);
  const gone = new Promise((resolve) => child.once('exit', resolve));
  if (child.exitCode === null && child.signalCode === null) {
    child.kill('SIGKILL');
    await gone;
  }
  return report;
}

const failed = (step: TrialStep, message: string): TrialReport => ({
  plugins: [],
  findings: [{ severity: 'error', step, place: null, message: `${message}.` }],
});

/**
 * `postern plugin check PATH`: tries the plugin and prints problems. Resolves with the exit status: 1 for a mistake.
 */
export async function checkPlugin(
  {
    path,
    options,
    json,
  }: {
    /** File or folder of the plugin, or the name of a package. */
    readonly path: string;
    readonly options: StartOptions;
    readonly json: boolean;
  },
  place: CommandEnvironment,
): Promise<number> {
  const report = await runTrial({ path, options, cwd: place.cwd, env: place.env });
  const ok = report.findings.every(({ severity }) => severity !== 'error');
  place.print(json ? JSON.stringify({ path, ok, ...report }, null, 2) : reportText(path, report));
  return ok ? 0 : 1;
}

/** The report as text. */
export function reportText(path: string, { plugins, findings }: TrialReport): string {
  const mistakes = findings.filter(({ severity }) => severity === 'error').length;
  const verdict = mistakes === 0 ? 'no mistakes found.' : mistakes === 1 ? 'a mistake.' : `${mistakes} mistakes.`;
  return [
    `${path}: ${verdict}`,
    ...findings.map(findingText),
    ...(mistakes === 0 ? plugins.flatMap(outlineText) : []),
  ].join('\n');
}

const findingText = ({ severity, place, message }: TrialFinding): string =>
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

/** A plugin in the output of `postern plugin check` and `list`. */
export interface PluginOutline {
  readonly name: string;
  /** Ids of services. */
  readonly needs: readonly string[];
  readonly uses: readonly string[];
  readonly provides: readonly string[];
  readonly commands: readonly string[];
  /** In call order. */
  readonly hooks: readonly Pick<HookDescription, 'stage' | 'phase' | 'mode'>[];
  /** Names of its delivery targets. */
  readonly targets: readonly string[];
  readonly endpoints: readonly { readonly method: string; readonly path: string; readonly access: string }[];
}

export function outlineOfPlugin(plugin: Plugin, { http, pipeline }: Pick<App, 'http' | 'pipeline'>): PluginOutline {
  const { name, needs, uses, provides, commands } = plugin;
  const own = <T extends { readonly plugin: string }>(list: readonly T[]) => list.filter((one) => one.plugin === name);
  return {
    name,
    needs: tokenIds(needs),
    uses: tokenIds(uses),
    provides: tokenIds(provides),
    commands: commands.map((command) => command.name),
    hooks: own(pipeline.describe()).map(({ stage, phase, mode }) => ({ stage, phase, mode })),
    targets: own(pipeline.targets()).map((target) => target.name),
    endpoints: own(http.describe()).map(({ method, path, access }) => ({ method, path, access })),
  };
}
