import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../../core/clock.js';
import type { FindingState } from '../../../core/contracts/doctor-check.js';
import { SystemResolver } from '../../../core/dns/system-resolver.js';
import { examine, type ReportedFinding } from '../../../plugins/doctor/doctor.js';
import { configure } from '../../../core/main.js';
import { DnsServer, type Zone } from '../../support/dns-server.js';
import { temporaryFolder, type Ending } from '../../support/temporary-folder.js';

export interface ExaminedOptions {
  /** A temporary one if absent. */
  readonly folder?: string;
  /** What the DNS knows; nothing if absent. */
  readonly zone?: Zone;
  /** How long its answers are waited for, in milliseconds. */
  readonly timeoutMs?: number;
  readonly clock?: Clock;
  readonly env?: Readonly<Record<string, string>>;
  readonly limitMs?: number;
}

/** What the doctor finds in a folder with that configuration. */
export class Examined {
  readonly findings: readonly ReportedFinding[];

  private constructor(findings: readonly ReportedFinding[]) {
    this.findings = findings;
  }

  static async of(test: Ending, config: string, options: ExaminedOptions = {}): Promise<Examined> {
    const { zone = {}, timeoutMs = 4000, clock = systemClock, env = {}, limitMs } = options;
    const folder = options.folder ?? (await temporaryFolder(test));
    await writeFile(join(folder, 'postern.json5'), config, { mode: 0o600 });
    const dns = await DnsServer.start(test, zone);
    const findings = await examine({
      configure: () => configure({}, { cwd: folder, env, print: () => undefined }),
      resolverFor: () => new SystemResolver({ servers: [dns.address], timeoutMs, tries: 1 }),
      clock,
      env,
      ...(limitMs !== undefined && { limitMs }),
    });
    return new Examined(findings);
  }

  /** `state: sentence → advice` of each finding of that check. */
  of(check: string): readonly string[] {
    return this.findings
      .filter((finding) => finding.check === check)
      .map(({ state, is, todo }) => `${state}: ${is}${todo === undefined ? '' : ` → ${todo}`}`);
  }

  states(check: string): readonly FindingState[] {
    return this.findings.filter((finding) => finding.check === check).map(({ state }) => state);
  }
}
