import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { atEnd, type Ending } from './ending.js';
import { freePort } from './free-port.js';
import { findPeer } from './peers.js';
import { temporaryFolder } from './temporary-folder.js';

export interface PrometheusTarget {
  /** `host:port` of a server of ours. */
  readonly address: string;
  readonly username: string;
  readonly password: string;
  /** Absolute path of a file of rules. */
  readonly rules: string;
}

interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [time: number, value: string];
}

/** A Prometheus of our own that scrapes one server each second. */
export class Prometheus {
  readonly #base: string;

  private constructor(port: number) {
    this.#base = `http://127.0.0.1:${port}/api/v1`;
  }

  /** Resolves when it answers; ended when the test ends. */
  static async start(test: Ending, { address, username, password, rules }: PrometheusTarget): Promise<Prometheus> {
    const folder = await temporaryFolder(test);
    const port = await freePort();
    const job = {
      job_name: 'postern',
      metrics_path: '/metrics/prometheus',
      basic_auth: { username, password },
      static_configs: [{ targets: [address] }],
    };
    const settings = {
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: [rules],
      scrape_configs: [job],
    };
    // JSON is YAML.
    await writeFile(join(folder, 'prometheus.yml'), JSON.stringify(settings));
    const words = [
      `--config.file=${join(folder, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=error',
    ];
    const child = spawn(findPeer('prometheus') ?? 'prometheus', words, { stdio: 'ignore' });
    atEnd(test, async () => {
      if (child.exitCode !== null) return;
      child.kill('SIGTERM');
      await once(child, 'exit');
    });
    const prometheus = new Prometheus(port);
    await prometheus.until(
      'prometheus_ready',
      async () => (await prometheus.#ask('/status/runtimeinfo')) !== undefined,
    );
    return prometheus;
  }

  /** Samples of an expression now. */
  async query(expression: string): Promise<readonly Sample[]> {
    const answer = await this.#ask(`/query?query=${encodeURIComponent(expression)}`);
    return (answer as { readonly result: readonly Sample[] } | undefined)?.result ?? [];
  }

  async targets(): Promise<readonly { readonly health: string; readonly lastError: string }[]> {
    const answer = (await this.#ask('/targets')) as { activeTargets: { health: string; lastError: string }[] };
    return answer.activeTargets;
  }

  async rules(): Promise<readonly { readonly name: string; readonly health: string; readonly lastError?: string }[]> {
    const answer = (await this.#ask('/rules')) as {
      groups: { rules: { name: string; health: string; lastError?: string }[] }[];
    };
    return answer.groups.flatMap(({ rules }) => rules);
  }

  /** Asks until it holds; nothing tells when Prometheus has scraped. */
  async until(what: string, holds: () => Promise<boolean>): Promise<void> {
    const end = performance.now() + 30_000;
    while (!(await holds().catch(() => false))) {
      if (performance.now() > end) throw new Error(`Prometheus has not come so far: ${what}`);
      await pause(100);
    }
  }

  /** The data of an answer. Throws when it is an error. */
  async #ask(path: string): Promise<unknown> {
    const answer = await fetch(`${this.#base}${path}`);
    const { status, data, error } = (await answer.json()) as { status: string; data?: unknown; error?: string };
    if (status !== 'success') throw new Error(`${path}: ${error ?? answer.status}`);
    return data;
  }
}
