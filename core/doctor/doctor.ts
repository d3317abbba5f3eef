import { systemClock } from '../clock.js';
import { SystemResolver } from '../dns/system-resolver.js';
import { version } from '../installation.js';
import { configure, type StartOptions, type Surroundings } from '../main.js';
import { examine } from './examination.js';
import { countByState, textReport } from './report.js';

export interface DoctorCall {
  readonly options: StartOptions;
  /** For a program, not for a person. */
  readonly json: boolean;
  /** The output is a terminal. */
  readonly terminal: boolean;
}

/** `postern doctor`: prints what was found. The exit status: 1 when there is a problem, else 0. */
export async function doctor({ options, json, terminal }: DoctorCall, surroundings: Surroundings): Promise<number> {
  const { env, print } = surroundings;
  const findings = await examine({
    configure: () => configure(options, surroundings),
    resolverFor: ({ settings }) => new SystemResolver({ ...settings.dns, timeoutMs: 1500, tries: 2, totalMs: 5000 }),
    clock: systemClock,
    env,
  });
  const at = new Date(systemClock.now()).toISOString();
  const counts = countByState(findings);
  // https://no-color.org: set and not empty.
  const coloured = terminal && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';
  if (json) print(JSON.stringify({ version, at, counts, findings }, null, 2));
  else print(textReport(findings, `Postern ${version}, looked at ${at}`, coloured));
  return counts.problem > 0 ? 1 : 0;
}
