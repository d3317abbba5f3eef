import { z } from 'zod';
import type { Configuration, EffectiveValue, LastReload, Reloading } from '../../../core/contracts/server.js';
import { sha256Of } from '../../../core/config/layer-folder.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import type { ConfigSettings } from '../options.js';
import { reloadEndpoint, shown } from './reload-endpoint.js';
import { SyncAnswer, syncText } from './sync-endpoints.js';
import type { Sync, SyncSummary } from '../sync/sync.js';
import { originFilters, viewer, type Viewer, type ViewerSection } from './viewer.js';

const Item = z.object({
  key: z.string(),
  value: z.unknown().describe('The effective value; a mask for a secret.'),
  origin: z.enum(['default', 'file', 'environment', 'command line', 'generated']),
  where: z.string().nullable().describe('File and line, variable or option that the value comes from.'),
  default: z.unknown(),
  description: z.string().nullable(),
  secret: z.boolean(),
  atStart: z.unknown().optional().describe('When it is another value than at the start: that one.'),
  pending: z.unknown().optional().describe('The value that a restart would bring into force.'),
});
const count = (): z.ZodInt => z.int().min(0).max(1_000_000);
const Answer = z.object({
  file: z.string().nullable(),
  q: z.string(),
  origin: z.enum(originFilters),
  shown: count(),
  total: count(),
  changed: count().describe('Keys with other values than at the start.'),
  restartRequired: count().describe('Keys that wait for a restart.'),
  lastReload: z
    .object({ at: z.iso.datetime(), by: z.string(), refused: z.string().nullable().describe('Why, or null.') })
    .nullable(),
  sync: SyncAnswer.describe('Whether files are pulled from elsewhere; more at /config/sync/status.'),
  sections: z.array(z.object({ name: z.string(), items: z.array(Item) })),
  files: z.array(z.object({ path: z.string(), text: z.string().describe('As it was read, secrets masked.') })),
});

export interface ConfigDeps {
  readonly configuration: Configuration;
  readonly reloading: Reloading;
  readonly sync: Sync;
  readonly settings: () => ConfigSettings;
}

interface Model extends Viewer {
  readonly lastReload: LastReload | null;
  readonly sync: SyncSummary;
}

export function configEndpoints({ configuration, reloading, sync, settings }: ConfigDeps): readonly AnyEndpoint[] {
  return [
    reloadEndpoint(reloading),
    defineEndpoint({
      method: 'GET',
      path: '/config',
      summary: 'The effective configuration: value, origin, default and meaning of every key',
      group: 'Configuration',
      access: 'admin',
      query: z.strictObject({
        q: z.string().max(200).default('').describe('Words to filter the keys by.'),
        origin: z.enum(originFilters).default('all').describe('Where values come from; "set" is all but defaults.'),
      }),
      answer: Answer,
      view: 'config.njk',
      fallback: 'html',
      cache: 'no-store',
      page: (model: Model) => ({
        ...model,
        origins: originFilters.map((value) => ({ value, label: originLabels[value] })),
        maintenance: settings().maintenance,
        sync: { ...model.sync, ...syncText(model.sync) },
        sections: model.sections.map((section) => sectionOf(section, model)),
      }),
      conditions: ['If-None-Match'],
      handle: ({ query }) => {
        const model: Model = {
          ...viewer(configuration, query.q.trim(), query.origin),
          lastReload: reloading.last(),
          sync: sync.summary(),
        };
        const etag = sha256Of(JSON.stringify([model, settings().maintenance])).slice(0, 32);
        return respond({ model, etag });
      },
    }),
  ];
}

/** Collapsed, so that all fit on a screen, unless there is a search or a change to show. */
function sectionOf({ name, items }: ViewerSection, { q, origin, file }: Model) {
  const changed = items.filter(({ atStart, pending }) => atStart !== undefined || pending !== undefined).length;
  return {
    title: titles[name] ?? name.replace(/^plugins\./, 'Plugin '),
    items: items.map((item) => rowOf(item, file)),
    set: items.filter((item) => item.origin !== 'default').length,
    changed,
    open: q !== '' || origin !== 'all' || changed > 0,
  };
}

const rowOf = (item: EffectiveValue, file: string | null) => ({
  ...item,
  shown: item.value === null ? 'not set' : shown(item.value),
  usual: item.default === null ? 'none' : shown(item.default),
  place: placeIn(file, item.where),
  ...(item.atStart !== undefined && { before: shown(item.atStart) }),
  ...(item.pending !== undefined && { later: shown(item.pending) }),
});

const originLabels: Readonly<Record<(typeof originFilters)[number], string>> = {
  all: 'everything',
  set: 'all but defaults',
  changed: 'changed since the start',
  default: 'defaults',
  file: 'the file',
  environment: 'the environment',
  'command line': 'the command line',
  generated: 'the machine',
};

const titles: Readonly<Record<string, string>> = {
  server: 'Server',
  http: 'HTTP',
  smtp: 'SMTP',
  dns: 'DNS',
  log: 'Log',
  watchdog: 'Watchdog',
};

/** The page names the file once, at the top. */
const placeIn = (file: string | null, where: string | null): string | null =>
  file !== null && where !== null && where.startsWith(`${file}:`) ? `line ${where.slice(file.length + 1)}` : where;
