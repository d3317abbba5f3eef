import { fork } from 'node:child_process';
import { rmSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { StartOptions } from '../../core/main.js';
import type { CommandEnvironment } from '../../core/cli/command.js';
import type { PluginOutline } from './plugin-outline.js';

/** What a trial does, in this order; each step needs the one before it. */
export const trialSteps = {
  load: 'its code was loaded',
  configuration: 'the configuration was read',
  setup: 'its setup ran',
  hooks: 'its hooks were asked',
  pages: 'its pages were made',
  stop: 'it was stopped',
} as const;
export type TrialStep = keyof typeof trialSteps;

/** Something that a start, or somebody who uses the plugin, would stumble over. */
export interface Finding {
  /** A warning is nothing that stops the server. */
  readonly severity: 'error' | 'warning';
  readonly step: TrialStep;
  /** In the folder of the plugin: `index.js:12:9`. */
  readonly place: string | null;
  readonly message: string;
}

export interface TrialReport {
  /** The plugins that were tried; empty when it did not come so far. */
  readonly plugins: readonly PluginOutline[];
  readonly findings: readonly Finding[];
  /** What `GET /pipeline` answers, when no plugin was named. */
  readonly pipeline?: unknown;
}

export interface TrialRequest {
  /** File or folder of the plugin, or the name of a package; null tries the configuration as it is. */
  readonly path: string | null;
  readonly options: StartOptions;
  readonly cwd: string;
  readonly env: CommandEnvironment['env'];
  /** Stands where the data folder would. */
  readonly scratch: string;
}

/** What the process of a trial says. */
export type TrialMessage = { readonly step: TrialStep } | { readonly report: TrialReport };

const usualLimitMs = 60_000;

/**
 * Starts a server with the plugin in a process of its own, without listeners, without a network and with an empty data folder,
 * and stops it again. What hangs is ended, what kills the process is told.
 */
export async function runTrial(
  request: Omit<TrialRequest, 'scratch'>,
  limitMs: number = usualLimitMs,
): Promise<TrialReport> {
  const scratch = await mkdtemp(join(tmpdir(), 'postern-check-'));
  try {
    return await inItsProcess({ ...request, scratch }, limitMs);
  } finally {
    await rm(scratch, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function inItsProcess(request: TrialRequest, limitMs: number): Promise<TrialReport> {
  // What it prints is not ours: our standard output is for the report.
  const child = fork(new URL('./trial-process.js', import.meta.url), { stdio: ['ignore', 2, 2, 'ipc'] });
  const takeAlong = (signal: NodeJS.Signals): void => {
    child.kill('SIGKILL');
    rmSync(request.scratch, { recursive: true, force: true });
    process.kill(process.pid, signal);
  };
  process.once('SIGINT', takeAlong).once('SIGTERM', takeAlong);
  let step: TrialStep = 'load';
  const ended = new Promise<TrialReport>((resolve) => {
    const end = (message: string) => resolve(failed(step, `${message} while ${trialSteps[step]}`));
    const limit = setTimeout(() => end(`It did not come to an end within ${limitMs / 1000} seconds`), limitMs);
    child.on('message', (message: TrialMessage) => {
      if ('step' in message) step = message.step;
      else resolve(message.report);
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
