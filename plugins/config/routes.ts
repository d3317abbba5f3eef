import { z } from 'zod';
import type { Configuration } from '../../core/contracts/server.js';
import { defineEndpoint, type AnyEndpoint } from '../../core/http/endpoint.js';
import type { ConfigSettings } from './options.js';
import { originFilters, viewer, type Viewer } from './viewer.js';

const Item = z.object({
  key: z.string(),
  value: z.unknown().describe('The effective value; a mask for a secret.'),
  origin: z.enum(['default', 'file', 'environment', 'command line', 'generated']),
  where: z.string().nullable().describe('File and line, variable or option that the value comes from.'),
  default: z.unknown(),
  description: z.string().nullable(),
  secret: z.boolean(),
});
const count = (): z.ZodInt => z.int().min(0).max(1_000_000);
const Answer = z.object({
  file: z.string().nullable(),
  q: z.string(),
  origin: z.enum(originFilters),
  shown: count(),
  total: count(),
  sections: z.array(z.object({ name: z.string(), items: z.array(Item) })),
});

export function configEndpoints(configuration: Configuration, settings: () => ConfigSettings): readonly AnyEndpoint[] {
  return [
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
      page: (model: Viewer) => ({
        ...model,
        origins: originFilters.map((value) => ({ value, label: originLabels[value] })),
        maintenance: settings().maintenance,
        sections: model.sections.map(({ name, items }) => ({
          name,
          title: titles[name] ?? name.replace(/^plugins\./, 'Plugin '),
          items: items.map((item) => ({
            ...item,
            shown: shown(item.value),
            usual: shown(item.default),
            place: placeIn(model.file, item.where),
          })),
        })),
      }),
      handle: ({ query }): Viewer => viewer(configuration, query.q.trim(), query.origin),
    }),
  ];
}

const originLabels: Readonly<Record<(typeof originFilters)[number], string>> = {
  all: 'everything',
  set: 'all but defaults',
  default: 'defaults',
  file: 'the file',
  environment: 'the environment',
  'command line': 'the command line',
  generated: 'the machine',
};

const titles: Readonly<Record<string, string>> = { server: 'Server', http: 'HTTP', smtp: 'SMTP', log: 'Log' };

/** The page names the file once, on its top. */
const placeIn = (file: string | null, where: string | null): string | null =>
  file !== null && where !== null && where.startsWith(`${file}:`) ? `line ${where.slice(file.length + 1)}` : where;

/** A value as one reads it in the file. */
const shown = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? ''));
