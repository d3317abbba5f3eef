import type { CommandEnvironment } from '../../core/cli/command.js';
import { withProgress } from '../../core/cli/terminal.js';
import { type Clock, systemClock } from '../../core/clock.js';
import { invalidPlacesOf } from '../../core/config/complaint.js';
import type { LoadedConfiguration } from '../../core/config/load.js';
import {
  type Finding,
  type FindingGroup,
  findingGroups,
  type FindingState,
  trouble,
} from '../../core/contracts/doctor-check.js';
import { faultCode } from '../../core/disk/fault.js';
import type { Resolver } from '../../core/dns/resolver.js';
import { SystemResolver } from '../../core/dns/system-resolver.js';
import { version } from '../../core/host/installation.js';
import { redactText } from '../../core/log/redact.js';
import { configure, type StartOptions } from '../../core/main.js';
import type { Plugin } from '../../core/plugin.js';
import { isProblem, isStartError } from '../../core/problem.js';
import { columns, wrapped } from '../../core/text/columns.js';
import { pluralize, printable } from '../../core/text/format.js';
import { accessChecks } from './access-checks.js';
import { configurationChecks } from './configuration-checks.js';
import { dataChecks } from './data-checks.js';
import { dnsChecks } from './dns-checks.js';
import { outboundFindings } from './outbound-trial.js';
import { type CoreCheck, lookAtOwner, type DoctorContext, relayServers } from './doctor-context.js';
import { portChecks } from './port-checks.js';
import { serverChecks } from './server-checks.js';
import { systemChecks } from './system-checks.js';
import { tlsChecks } from './tls-checks.js';

export interface DoctorCall {
  readonly options: StartOptions;
  /** Output for programs. */
  readonly json: boolean;
  /** The output is a terminal. */
  readonly terminal: boolean;
}

/** `postern doctor`: prints the findings. Exit status 1 when there is a problem, else 0. */
export async function doctor(call: DoctorCall, environment: CommandEnvironment): Promise<number> {
  const findings = await withProgress('Checking', (show) =>
    examine({
      configure: () => configure(call.options, environment),
      resolverFor,
      clock: systemClock,
      env: environment.env,
      progress: (done, total) => show(`Checking: ${done} of ${total}`),
    }),
  );
  return printReport(findings, call, environment);
}

/** `postern doctor outbound`: the same for the connection to the servers of one domain. */
export async function dialOut(domain: string, call: DoctorCall, environment: CommandEnvironment): Promise<number> {
  const configuration = await configure(call.options, environment);
  const { hostname } = configuration;
  const resolver = relayResolver(configuration);
  const found = await withProgress(`Connecting to the servers of ${domain}`, () =>
    outboundFindings({ domain, hostname, resolver, clock: systemClock }),
  );
  const findings = found.map((finding) => presentable({ group: 'Mail', check: 'outbound', ...finding }));
  return printReport(findings, call, environment);
}

const resolverFor = ({ settings }: LoadedConfiguration): SystemResolver => resolverOf(settings.dns.servers);

/** The resolver of the queue, which may have its own name servers. */
function relayResolver(configuration: LoadedConfiguration): SystemResolver {
  return resolverOf(relayServers(configuration) ?? configuration.settings.dns.servers);
}

const resolverOf = (servers: readonly string[]): SystemResolver =>
  new SystemResolver({ servers, timeoutMs: 1500, tries: 2, totalMs: 5000 });

function printReport(
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

/** Time limit of one check. */
const defaultLimitMs = 10_000;
const maxSentence = 600;

const coreChecks: readonly CoreCheck[] = [
  ...configurationChecks,
  ...systemChecks,
  ...dataChecks,
  ...portChecks,
  ...accessChecks,
  ...dnsChecks,
  ...tlsChecks,
  ...serverChecks,
];

export interface ExaminationInput {
  /** Reads and checks the configuration. @throws start error */
  readonly configure: () => Promise<LoadedConfiguration>;
  readonly resolverFor: (configuration: LoadedConfiguration) => Resolver;
  readonly clock: Clock;
  readonly env: DoctorContext['env'];
  readonly limitMs?: number;
  /** Called as each check ends. */
  readonly progress?: (done: number, total: number) => void;
}

export interface ReportedFinding extends Finding {
  readonly group: FindingGroup;
  readonly check: string;
}

/** Runs all checks concurrently, each with a time limit. Results in the order of the groups. Never rejects. */
export async function examine(input: ExaminationInput): Promise<readonly ReportedFinding[]> {
  const { clock, env, limitMs = defaultLimitMs, progress } = input;
  let configuration: LoadedConfiguration;
  try {
    configuration = await input.configure();
  } catch (error) {
    return (await withoutConfiguration(error, { clock, limitMs })).map(presentable);
  }
  const owner = await lookAtOwner(configuration.data, clock);
  const context = { configuration, owner, resolver: input.resolverFor(configuration), clock, env };
  const checks = [...coreChecks, ...configuration.plugins.flatMap((plugin) => checksOf(plugin))];
  let done = 0;
  const found = await Promise.all(
    checks.map(async (check) => {
      const findings = await runOne(check, context, limitMs);
      progress?.((done += 1), checks.length);
      return findings;
    }),
  );
  return inOrder(found.flat()).map(presentable);
}

/** Adapts a check of a plugin. */
function checksOf(plugin: Plugin): readonly CoreCheck[] {
  return plugin.checks.map((check) => ({
    group: check.group,
    name: check.name,
    run: ({ configuration, owner, resolver, clock, signal }) =>
      check.run({
        options: configuration.options.get(plugin.name),
        configuration,
        owner: owner.state === 'answers' ? owner.call : undefined,
        resolver,
        clock,
        signal,
      }),
  }));
}

type Circumstances = Omit<DoctorContext, 'signal'>;

async function runOne(check: CoreCheck, about: Circumstances, limitMs: number): Promise<readonly ReportedFinding[]> {
  const { group, name } = check;
  const abort = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<readonly Finding[]>((resolve) => {
    timer = setTimeout(() => {
      const is = `The check ${name} did not come to an end within ${limitMs / 1000} s.`;
      resolve([trouble(is, 'What it waits for (a disk, a name server, the server itself) may hang.')]);
    }, limitMs);
  });
  try {
    const run = Promise.resolve(check.run({ ...about, signal: abort.signal }));
    const findings = await Promise.race([run, late]);
    return findings.map((finding) => ({ group, check: name, ...finding }));
  } catch (error) {
    return [{ group, check: name, ...failed(name, error) }];
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

function failed(name: string, error: unknown): Finding {
  if (isStartError(error) || isProblem(error)) return trouble(error.message, 'Mend that, and look again.');
  const code = faultCode(error) ?? (error instanceof Error ? error.name : 'error');
  const todo = code === 'EACCES' || code === 'EPERM' ? 'Run this as the user of the server.' : 'Look at what it names.';
  return trouble(`The check ${name} failed (${code}).`, todo);
}

/** Reports an invalid configuration; without one, only checks of the machine can run. */
async function withoutConfiguration(
  thrown: unknown,
  { clock, limitMs }: { readonly clock: Clock; readonly limitMs: number },
): Promise<readonly ReportedFinding[]> {
  const where = { group: 'Configuration', check: 'configuration' } as const;
  const todo = 'Mend it there; the other checks need a configuration without mistakes.';
  const complaints = isStartError(thrown)
    ? invalidPlacesOf(thrown).map(({ message }) => trouble(message, todo))
    : [failed('configuration', thrown)];
  const machine = systemChecks.filter(({ name }) => name === 'node-version');
  const rest = await Promise.all(machine.map((check) => runOne(check, { clock } as Circumstances, limitMs)));
  return [...complaints.map((finding) => ({ ...where, ...finding })), ...rest.flat()];
}

function inOrder(findings: readonly ReportedFinding[]): readonly ReportedFinding[] {
  return findingGroups.flatMap((group) => findings.filter((finding) => finding.group === group));
}

/**
 * Contains names of files, records and remote texts: masks secrets, removes control characters and limits the length.
 */
function presentable(finding: ReportedFinding): ReportedFinding {
  const { is, todo } = finding;
  return { ...finding, is: sentence(is), ...(todo !== undefined && { todo: sentence(todo) }) };
}

function sentence(text: string): string {
  const clean = printable(redactText(text));
  return clean.length <= maxSentence ? clean : `${clean.slice(0, maxSentence)}…`;
}

const indent = 11;
const words: Readonly<Record<FindingState, string>> = {
  ok: 'ok',
  advice: 'advice',
  problem: 'PROBLEM',
  skipped: 'skipped',
};
/** SGR codes (ECMA-48): green, yellow, bold red, dim. */
const colours: Readonly<Record<FindingState, string>> = { ok: '32', advice: '33', problem: '1;31', skipped: '2' };

/** For a terminal of 80 columns. */
export function textReport(findings: readonly ReportedFinding[], title: string, coloured: boolean): string {
  const paint = (code: string, text: string): string => (coloured ? `\u001B[${code}m${text}\u001B[0m` : text);
  const groups = [...new Set(findings.map(({ group }) => group))];
  const blocks = groups.map((group) => {
    const lines = findings.filter((finding) => finding.group === group).flatMap((finding) => linesOf(finding, paint));
    return [paint('1', group), ...lines].join('\n');
  });
  return [title, ...blocks, summary(findings)].join('\n\n');
}

function linesOf({ state, is, todo }: ReportedFinding, paint: (code: string, text: string) => string): string[] {
  const [first = '', ...rest] = wrapped(is, columns - indent);
  const word = paint(colours[state], words[state].padEnd(indent - 2));
  const margin = ' '.repeat(indent);
  const advice = todo === undefined ? [] : wrapped(todo, columns - indent - 3);
  return [
    `  ${word}${first}`,
    ...rest.map((line) => `${margin}${line}`),
    ...advice.map((line, index) => `${margin}${index === 0 ? '→ ' : '  '}${line}`),
  ];
}

function countByState(findings: readonly ReportedFinding[]): Readonly<Record<FindingState, number>> {
  const count = (state: FindingState) => findings.filter((finding) => finding.state === state).length;
  return { ok: count('ok'), advice: count('advice'), problem: count('problem'), skipped: count('skipped') };
}

function summary(findings: readonly ReportedFinding[]): string {
  const { ok, advice, problem, skipped } = countByState(findings);
  const problems = problem === 0 ? 'no problems' : pluralize(problem, 'problem');
  const pieces = advice === 0 ? 'no pieces of advice' : pluralize(advice, 'piece of advice', 'pieces of advice');
  return `${capital(problems)}, ${pieces}; ${ok} ok, ${skipped} skipped.`;
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
