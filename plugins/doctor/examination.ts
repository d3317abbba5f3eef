import type { Clock } from '../../core/clock.js';
import type { LoadedConfiguration } from '../../core/config/load.js';
import { invalidPlacesOf } from '../../core/config/complaint.js';
import { findingGroups, trouble, type Finding, type FindingGroup } from '../../core/contracts/doctor-check.js';
import { faultCode } from '../../core/disk/fault.js';
import type { Resolver } from '../../core/dns/resolver.js';
import type { Plugin } from '../../core/plugin.js';
import { isProblem, isStartError } from '../../core/problem.js';
import { printable } from '../../core/text/format.js';
import { redactText } from '../../core/log/redact.js';
import { accessChecks } from './access-checks.js';
import { configurationChecks } from './configuration-checks.js';
import { dataChecks } from './data-checks.js';
import { dnsChecks } from './dns-checks.js';
import { lookAtOwner } from './owner-look.js';
import type { CoreCheck, Patient } from './patient.js';
import { portChecks } from './port-checks.js';
import { serverChecks } from './server-checks.js';
import { systemChecks } from './system-checks.js';
import { tlsChecks } from './tls-checks.js';

/** How long one check may take. */
const usualLimitMs = 10_000;
const longestSentence = 600;

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
  readonly env: Patient['env'];
  readonly limitMs?: number;
}

export interface ReportedFinding extends Finding {
  readonly group: FindingGroup;
  readonly check: string;
}

/** Looks at everything, all checks at once, each for a bounded time. In the order of the groups. Never rejects. */
export async function examine(input: ExaminationInput): Promise<readonly ReportedFinding[]> {
  const { clock, env, limitMs = usualLimitMs } = input;
  let configuration: LoadedConfiguration;
  try {
    configuration = await input.configure();
  } catch (error) {
    return (await withoutConfiguration(error, { clock, limitMs })).map(presentable);
  }
  const owner = await lookAtOwner(configuration.data, clock);
  const patient = { configuration, owner, resolver: input.resolverFor(configuration), clock, env };
  const checks = [...coreChecks, ...configuration.plugins.flatMap((plugin) => checksOf(plugin))];
  const found = await Promise.all(checks.map((check) => runOne(check, patient, limitMs)));
  return inOrder(found.flat()).map(presentable);
}

/** What a plugin looks at, as one of our own checks. */
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

type Circumstances = Omit<Patient, 'signal'>;

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

/** Nothing else is known to be meant as it stands. */
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

/** Names of files, records and remote texts are in it: no secret, no control character, and an end. */
export function presentable(finding: ReportedFinding): ReportedFinding {
  const { is, todo } = finding;
  return { ...finding, is: sentence(is), ...(todo !== undefined && { todo: sentence(todo) }) };
}

function sentence(text: string): string {
  const clean = printable(redactText(text));
  return clean.length <= longestSentence ? clean : `${clean.slice(0, longestSentence)}…`;
}
