import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { MetricFamily, MetricsExposition } from '../contracts/server.js';
import { contentTypes, expose, type CollectedMetric } from './exposition.js';
import { nameComplaint, type MetricKind } from './name.js';
import { processMetrics } from './process.js';
import { capSeries } from './series.js';
import { tallyChildren } from './tally.js';
import type { PluginContext } from '../plugin.js';
import { within } from '../host/time-limit.js';

export interface MetricsOptions {
  /** Sets of label values that one metric may have; later ones are counted as `other`. */
  readonly maxSeries?: number;
  /** Whether the exposition tells of the process too. */
  readonly process?: boolean;
}

/** The metrics of one plugin; `undo` takes all of them away. */
export type MetricsScope = PluginContext['metrics'] & { undo(): void };

const PREFIX = 'postern_';
const mostCollectingMs = 5000;

type Metric = Counter | Gauge | Histogram;

interface Common {
  readonly name: string;
  readonly help: string;
  readonly labelNames: string[];
  readonly registers: Registry[];
}

interface Declaration {
  readonly plugin: string;
  readonly kind: MetricKind;
  readonly name: string;
  readonly help: string;
  readonly labels: readonly string[];
}

interface Registered extends Declaration {
  readonly metric: Metric;
  /** Scopes that have it: while a plugin is replaced, its old and its new one. */
  holders: number;
  /** Of a gauge: what each of them does when it is collected. The newest counts. */
  readonly collectors: Map<object, () => void | Promise<void>>;
}

/** Every metric of the server, named by the rules of Prometheus and bounded in its series. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #registered = new Map<string, Registered>();
  readonly #options: Required<MetricsOptions>;

  readonly exposition: MetricsExposition = {
    collect: async () => (await this.#collect()).map(familyOf),
    render: async (format) => ({ body: expose(await this.#collect(), format), contentType: contentTypes[format] }),
  };

  constructor(options: MetricsOptions = {}) {
    this.#options = { maxSeries: 200, process: true, ...options };
  }

  /**
   * What a plugin is given. A name that a plugin registers twice in the same form is the same metric.
   *
   * The functions throw when a name breaks the rules or belongs to another plugin.
   */
  scope(plugin: string): MetricsScope {
    const held = new Set<string>();
    const register = <M extends Metric>(
      type: abstract new (...given: never[]) => M,
      declaration: Declaration,
      make: (common: Common) => M,
    ): M => {
      const known = this.#known(declaration);
      if (known !== undefined && !(known.metric instanceof type)) throw taken(declaration, known);
      const metric = known === undefined ? this.#make(declaration, make) : known.metric;
      if (!held.has(declaration.name)) this.#hold(declaration.name);
      held.add(declaration.name);
      return metric as M;
    };
    return {
      counter: (name, help, labels = []) =>
        register(Counter, { plugin, kind: 'counter', name, help, labels }, (common) => new Counter(common)),
      gauge: (name, help, labels = [], collect) => {
        const newest = () => [...(this.#registered.get(name)?.collectors.values() ?? [])].at(-1);
        const gauge = register(
          Gauge,
          { plugin, kind: 'gauge', name, help, labels },
          (common) => new Gauge({ ...common, collect: () => newest()?.() }),
        );
        if (collect !== undefined) this.#registered.get(name)?.collectors.set(held, () => collect(gauge));
        return gauge;
      },
      histogram: (name, help, buckets, labels = []) =>
        register(
          Histogram,
          { plugin, kind: 'histogram', name, help, labels },
          (common) => new Histogram({ ...common, buckets: [...buckets] }),
        ),
      undo: () => {
        for (const name of held) this.#letGo(name, held);
        held.clear();
      },
    };
  }

  #known(declaration: Declaration): Registered | undefined {
    const complaint = nameComplaint(declaration.kind, declaration.name, declaration.help, declaration.labels);
    if (complaint !== undefined) {
      throw new Error(`Metric "${declaration.name}" of plugin ${declaration.plugin}: ${complaint}.`);
    }
    const known = this.#registered.get(declaration.name);
    if (known === undefined) return undefined;
    const same = known.plugin === declaration.plugin && known.labels.join() === declaration.labels.join();
    if (!same) throw taken(declaration, known);
    return known;
  }

  #make<M extends Metric>(declaration: Declaration, make: (common: Common) => M): M {
    const { name, help, labels } = declaration;
    const metric = make({ name: PREFIX + name, help, labelNames: [...labels], registers: [this.#registry] });
    capSeries(metric, labels, this.#options.maxSeries);
    if (metric instanceof Counter) tallyChildren(metric);
    this.#registered.set(name, { ...declaration, metric, holders: 0, collectors: new Map() });
    return metric;
  }

  #hold(name: string): void {
    const registered = this.#registered.get(name);
    if (registered !== undefined) registered.holders += 1;
  }

  #letGo(name: string, scope: object): void {
    const registered = this.#registered.get(name);
    if (registered === undefined) return;
    registered.collectors.delete(scope);
    registered.holders -= 1;
    if (registered.holders > 0) return;
    this.#registered.delete(name);
    this.#registry.removeSingleMetric(PREFIX + name);
  }

  /** One metric that cannot be collected, or not in time, does not take the others with it. */
  async #collect(): Promise<readonly CollectedMetric[]> {
    const own = [...this.#registered.values()].map(async (registered) => [await inTime(registered)]);
    const collected = await Promise.allSettled([
      ...own,
      ...(this.#options.process ? [processMetrics().getMetricsAsJSON()] : []),
    ]);
    return collected.flatMap((result): readonly CollectedMetric[] =>
      result.status === 'fulfilled' ? result.value : [],
    );
  }
}

/** What a plugin does to collect a gauge may never end; nothing else can. */
function inTime({ metric, name, collectors }: Registered): ReturnType<Metric['get']> {
  if (collectors.size === 0) return metric.get();
  return within(
    mostCollectingMs,
    metric.get(),
    `the metric ${name} is not collected after ${mostCollectingMs / 1000} s`,
  );
}

const familyOf = ({ name, values }: CollectedMetric): MetricFamily => ({
  name,
  samples: values.map((value: CollectedMetric['values'][number] & { readonly metricName?: string }) => ({
    name: value.metricName ?? name,
    labels: withoutGaps(value.labels),
    value: value.value,
  })),
});

const withoutGaps = (labels: Readonly<Record<string, string | number | undefined>>): Record<string, string | number> =>
  Object.fromEntries(Object.entries(labels).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])));

const taken = (wanted: Declaration, known: Declaration): Error =>
  new Error(
    `Metric "${wanted.name}" of plugin ${wanted.plugin} is already a ${known.kind} of plugin ${known.plugin}` +
      ` with labels [${known.labels.join(', ')}].`,
  );
