import { z } from 'zod';
import type { Configuration } from '../../../core/contracts/server.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import type { Environment, EnvironmentVariable } from '../system/environment.js';
import { systemProperties, type PropertySection } from '../system/system-properties.js';
import type { Stall, StallRecorder } from '../system/stalls.js';
import { threadDumpText, type ThreadDump, type ThreadDumps } from '../system/thread-dump.js';

const group = 'Service';
const contentType = 'text/plain; charset=utf-8';

const tabs = [
  { title: 'Properties', href: '/system/props' },
  { title: 'Environment', href: '/system/env' },
  { title: 'Threads', href: '/system/threads' },
  { title: 'Heap dumps', href: '/system/heapdumps' },
] as const;

/** The pages about the process, with the current one. */
export const systemTabs = (href: (typeof tabs)[number]['href']): object =>
  tabs.map((tab) => ({ ...tab, current: tab.href === href }));

export interface SystemDeps {
  readonly configuration: Pick<Configuration, 'data' | 'file'>;
  readonly environment: Environment;
  /** Further environment variables that may be shown. */
  readonly shown: () => readonly string[];
  readonly threads: ThreadDumps;
  readonly stalls: StallRecorder;
}

export function systemEndpoints(deps: SystemDeps): readonly AnyEndpoint[] {
  return [propertiesEndpoint(deps), environmentEndpoint(deps), threadsEndpoint(deps)];
}

const page = {
  method: 'GET',
  group,
  access: 'admin',
  produces: ['html', 'json', 'text'],
  fallback: 'text',
  cache: 'no-store',
} as const;

interface Properties {
  readonly sections: readonly PropertySection[];
}

const propertiesEndpoint = ({ configuration }: SystemDeps): AnyEndpoint =>
  defineEndpoint({
    ...page,
    path: '/system/props',
    summary: 'System properties: versions, V8, operating system, memory, arguments, paths, limits',
    answer: z.object({
      sections: z.array(
        z.object({ name: z.string(), properties: z.array(z.object({ name: z.string(), value: z.string() })) }),
      ),
    }),
    view: 'properties.njk',
    page: (model: Properties) => ({ ...model, tabs: systemTabs('/system/props') }),
    handle: ({ request }) => {
      const sections = systemProperties(configuration);
      if (request.representation !== 'text') return { sections };
      const lines = sections.flatMap(({ properties }) => properties.map(({ name, value }) => `${name}=${value}\n`));
      return respond<Properties>({ text: { body: lines.join(''), contentType } });
    },
  });

interface Variables {
  readonly items: readonly EnvironmentVariable[];
}

const environmentEndpoint = ({ environment, shown }: SystemDeps): AnyEndpoint =>
  defineEndpoint({
    ...page,
    path: '/system/env',
    summary: 'The environment: every name; values only of variables known to be harmless',
    answer: z.object({ items: z.array(z.object({ name: z.string(), value: z.string(), shown: z.boolean() })) }),
    view: 'environment.njk',
    page: (model: Variables) => ({ ...model, tabs: systemTabs('/system/env') }),
    handle: ({ request }) => {
      const items = environment.list(shown());
      if (request.representation !== 'text') return { items };
      const body = items.map(({ name, value }) => `${name}=${value}\n`).join('');
      return respond<Variables>({ text: { body, contentType } });
    },
  });

const count = (): z.ZodInt => z.int().min(0).max(1_000_000);

const Stacks = z.array(z.object({ seen: count(), frames: z.array(z.string()) }));

interface Threads extends ThreadDump {
  readonly stalls: { readonly aboveMs: number; readonly items: readonly Stall[] };
}

const threadsEndpoint = ({ threads, stalls }: SystemDeps): AnyEndpoint =>
  defineEndpoint({
    ...page,
    path: '/system/threads',
    summary: 'Thread dump: what the main thread does even while it is busy, workers, resources, handles',
    answer: z.object({
      time: z.iso.datetime(),
      pid: z
        .int()
        .min(0)
        .max(2 ** 32),
      node: z.string(),
      utilization: z.number().min(0).max(1),
      threads: z.array(
        z.object({
          name: z.string(),
          id: count(),
          stacks: Stacks,
        }),
      ),
      resources: z.record(z.string(), count()),
      handles: z.array(z.object({ type: z.string(), active: count(), total: count() })),
      stalls: z
        .object({
          aboveMs: count().describe('Shorter ones are not recorded.'),
          items: z.array(
            z.object({
              at: z.iso.datetime(),
              ms: z
                .int()
                .min(0)
                .max(2 ** 40),
              plugin: z.string().nullable().describe('Whose code ran; null when it was none, or is not known.'),
              doing: z.string().nullable().describe('What of it ran.'),
              stacks: Stacks,
            }),
          ),
        })
        .describe('Times in which the event loop stood still, newest first.'),
    }),
    view: 'threads.njk',
    page: (model: Threads) => ({
      ...model,
      tabs: systemTabs('/system/threads'),
      list: Object.entries(model.resources).map(([type, total]) => ({ type, total })),
    }),
    handle: async ({ request }) => {
      const dump = await threads.take();
      const items = stalls.list();
      if (request.representation !== 'text') return { ...dump, stalls: { aboveMs: stalls.aboveMs, items } };
      return respond<Threads>({ text: { body: threadDumpText(dump, items), contentType } });
    },
  });
