import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { MetricFamily, MetricsExposition } from '../contracts/server.js';
import { systemClock } from '../clock.js';
import { withTimeout } from '../concurrency.js';
import type { PluginContext } from '../plugin.js';
import {
  contentTypes,
  expose,
  type CollectedMetric,
  type ExpositionFormat,
  type Metric,
  MetricText,
} from './exposition.js';
import { type MetricKind, nameComplaint } from './name.js';
import { capSeries, batchIncrements } from './series.js';

interface MetricsOptions {
  /** Label sets of one metric; later ones are counted as `other`. */
  readonly maxSeries?: number;
  /** Whether to include metrics of the process. */
  readonly process?: boolean;
}

/** The metrics of one plugin; `undo` removes all of them. */
type MetricsScope = PluginContext['metrics'] & { undo(): void };

const PREFIX = 'postern_';
const collectTimeoutMs = 5000;

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
  readonly text: MetricText;
  /** Scopes that registered it: two while a plugin is replaced. */
  holders: number;
  /** Collect functions of a gauge by scope; the newest one is used. */
  readonly collectors: Map<object, () => void | Promise<void>>;
}

/** All metrics of the server, with names checked by the rules of Prometheus and bounded label sets. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #registered = new Map<string, Registered>();
  readonly #options: Required<MetricsOptions>;

  readonly exposition: MetricsExposition = {
    collect: async () => (await this.#collect()).map(familyOf),
    render: async (format) => ({ body: await this.#render(format), contentType: contentTypes[format] }),
  };

  constructor(options: MetricsOptions = {}) {
    this.#options = { maxSeries: 200, process: true, ...options };
  }

  /**
   * The metrics interface of a plugin. Registering a name twice with the same shape returns the same metric.
   *
   * @throws Error from its functions for an invalid name, or for one of another plugin
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
      if (!held.has(declaration.name)) this.#acquire(declaration.name);
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
        for (const name of held) this.#release(name, held);
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
    if (metric instanceof Counter) batchIncrements(metric);
    this.#registered.set(name, {
      ...declaration,
      metric,
      text: new MetricText(metric),
      holders: 0,
      collectors: new Map(),
    });
    return metric;
  }

  #acquire(name: string): void {
    const registered = this.#registered.get(name);
    if (registered !== undefined) registered.holders += 1;
  }

  #release(name: string, scope: object): void {
    const registered = this.#registered.get(name);
    if (registered === undefined) return;
    registered.collectors.delete(scope);
    registered.holders -= 1;
    if (registered.holders > 0) return;
    this.#registered.delete(name);
    this.#registry.removeSingleMetric(PREFIX + name);
  }

  async #render(format: ExpositionFormat): Promise<string> {
    const texts = [...this.#registered.values()].map((registered) => textOf(registered, format));
    const own = await Promise.all(texts.map((text) => Promise.resolve(text)));
    const rest = this.#options.process ? await processText(format) : '';
    return `${own.join('')}${rest}${format === 'openmetrics' ? '# EOF\n' : ''}`;
  }

  /** A metric that fails or takes too long does not affect the others. */
  async #collect(): Promise<readonly CollectedMetric[]> {
    const own = [...this.#registered.values()].map(async (registered) => [await inTime(registered)]);
    const collected = await Promise.allSettled([
      ...own,
      ...(this.#options.process ? [currentFigures().collected] : []),
    ]);
    return collected.flatMap((result): readonly CollectedMetric[] =>
      result.status === 'fulfilled' ? result.value : [],
    );
  }
}

/** Empty for a metric that fails or takes too long. */
function textOf({ metric, text, name }: Registered, format: ExpositionFormat): string | Promise<string> {
  try {
    const pending = (metric as { collect?: () => unknown }).collect?.();
    if (!(pending instanceof Promise)) return text.render(format);
    return withTimeout(collectTimeoutMs, pending, lateSentence(name)).then(
      () => text.render(format),
      () => '',
    );
  } catch {
    return '';
  }
}

const lateSentence = (name: string): string => `the metric ${name} is not collected after ${collectTimeoutMs / 1000} s`;

/** Only gauges run code of plugins, which may never end. */
function inTime({ metric, name, collectors }: Registered): ReturnType<Metric['get']> {
  if (collectors.size === 0) return metric.get();
  return withTimeout(collectTimeoutMs, metric.get(), lateSentence(name));
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

/** Gauges that end in `_total`; the metric without it holds the same sum. */
const misnamed = ['nodejs_active_handles_total', 'nodejs_active_requests_total', 'nodejs_active_resources_total'];

let registry: Registry | undefined;

/**
 * Metrics of this process: CPU, memory, descriptors, heap, garbage collection, event loop. Registered once for all
 * servers in the process, since they cannot be unregistered.
 */
function processMetrics(): Registry {
  if (registry !== undefined) return registry;
  registry = new Registry();
  collectDefaultMetrics({ register: registry });
  for (const name of misnamed) registry.removeSingleMetric(name);
  return registry;
}

/** Scrapes within a second share the figures: reading them costs more than all metrics of the server. */
const keepMs = 1000;
let figures: ProcessFigures | undefined;

interface ProcessFigures {
  readonly until: number;
  readonly collected: Promise<readonly CollectedMetric[]>;
  /** Made when it is asked for. */
  readonly texts: Partial<Record<ExpositionFormat, string>>;
}

function currentFigures(): ProcessFigures {
  const now = systemClock.monotonic();
  if (figures === undefined || now >= figures.until) {
    figures = { until: now + keepMs, collected: processMetrics().getMetricsAsJSON(), texts: {} };
  }
  return figures;
}

async function processText(format: ExpositionFormat): Promise<string> {
  const { collected, texts } = currentFigures();
  const metrics = await collected.catch(() => []);
  return (texts[format] ??= expose(metrics, format));
}
