import { z } from 'zod';
import { systemClock } from '../../core/clock.js';
import type { LoadedConfiguration } from '../../core/config/load.js';
import { SystemResolver } from '../../core/dns/system-resolver.js';
import { version } from '../../core/host/installation.js';
import { configure, type StartOptions } from '../../core/main.js';
import type { CommandEnvironment } from '../../core/cli/command.js';
import { examine, presentable, type ReportedFinding } from './examination.js';
import { outboundFindings } from './outbound-trial.js';
import { countByState, textReport } from './report.js';

export interface DoctorCall {
  readonly options: StartOptions;
  /** For a program, not for a person. */
  readonly json: boolean;
  /** The output is a terminal. */
  readonly terminal: boolean;
}

/** `postern doctor`: prints what was found. The exit status: 1 when there is a problem, else 0. */
export async function doctor(call: DoctorCall, surroundings: CommandEnvironment): Promise<number> {
  const findings = await examine({
    configure: () => configure(call.options, surroundings),
    resolverFor,
    clock: systemClock,
    env: surroundings.env,
  });
  return tell(findings, call, surroundings);
}

/** `postern doctor outbound`: the same for the way to the servers of one domain, which is dialled for it. */
export async function dialOut(domain: string, call: DoctorCall, surroundings: CommandEnvironment): Promise<number> {
  const configuration = await configure(call.options, surroundings);
  const { hostname } = configuration;
  const found = await outboundFindings({
    domain,
    hostname,
    resolver: relayResolver(configuration),
    clock: systemClock,
  });
  const findings = found.map((finding) => presentable({ group: 'Mail', check: 'outbound', ...finding }));
  return tell(findings, call, surroundings);
}

const resolverFor = ({ settings }: LoadedConfiguration): SystemResolver => resolverOf(settings.dns.servers);

const RelayOptions = z.object({ resolver: z.object({ servers: z.array(z.string()).optional() }) });

/** That of the queue, which may have name servers to itself. */
function relayResolver({ options, settings }: LoadedConfiguration): SystemResolver {
  const relay = RelayOptions.safeParse(options.get('client-queue')).data;
  return resolverOf(relay?.resolver.servers ?? settings.dns.servers);
}

const resolverOf = (servers: readonly string[]): SystemResolver =>
  new SystemResolver({ servers, timeoutMs: 1500, tries: 2, totalMs: 5000 });

function tell(
  findings: readonly ReportedFinding[],
  { json, terminal }: DoctorCall,
  { env, print }: CommandEnvironment,
): number {
  const at = new Date(systemClock.now()).toISOString();
  const counts = countByState(findings);
  // https://no-color.org: set and not empty.
  const coloured = terminal && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';
  if (json) print(JSON.stringify({ version, at, counts, findings }, null, 2));
  else print(textReport(findings, `Postern ${version}, looked at ${at}`, coloured));
  return counts.problem > 0 ? 1 : 0;
}
