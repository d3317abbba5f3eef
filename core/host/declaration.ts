import { isAbsolute } from 'node:path';
import type { Plugin } from '../plugin.js';
import type { Services } from './service.js';

/** In the log, in lists and among metrics a plugin of that name would be taken for the server. */
const ownNames: ReadonlySet<unknown> = new Set(['core', 'http', 'smtp']);

/**
 * What a declaration says wrong. Site plugins are JavaScript: what the compiler would refuse is refused here.
 *
 * @param taken commands that it cannot have
 */
export function declarationComplaints(plugin: Plugin, taken: ReadonlySet<string> = new Set()): readonly string[] {
  const complaints: string[] = [];
  const { name, options, setup, views, assets, commands, reload } = plugin as { readonly [K in keyof Plugin]: unknown };
  if (typeof name !== 'string' || !/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(name)) {
    complaints.push(`name: ${JSON.stringify(name)} is not lower-case words with "-" between them, such as rate-limit.`);
  }
  if (ownNames.has(name))
    complaints.push(`name: ${String(name)} is what the server calls a part of itself: choose another.`);
  if (!has(options, 'safeParse'))
    complaints.push('options: not a zod schema; z.strictObject({ … }) from postern/plugin is one.');
  if (typeof setup !== 'function') complaints.push('setup: not a function.');
  for (const [key, folder] of Object.entries({ views, assets })) {
    if (folder !== undefined && !(typeof folder === 'string' && isAbsolute(folder))) {
      complaints.push(
        `${key}: ${JSON.stringify(folder)} is not an absolute path; join(import.meta.dirname, '${key}') is.`,
      );
    }
  }
  for (const key of ['needs', 'uses', 'provides'] as const) complaints.push(...serviceComplaints(key, plugin[key]));
  if (![undefined, 'replace', 'restart'].includes(reload as string | undefined)) {
    complaints.push(`reload: ${JSON.stringify(reload)} is neither 'replace' nor 'restart'.`);
  }
  complaints.push(...commandComplaints(commands, taken));
  return complaints;
}

function serviceComplaints(key: string, services: Services): readonly string[] {
  return Object.entries(services ?? {})
    .filter(([, token]) => !has(token, 'postern') || !has(token, 'id'))
    .map(([name]) => `${key}.${name}: not the token of a service; service('example.${name}') makes one.`);
}

function commandComplaints(commands: unknown, taken: ReadonlySet<string>): readonly string[] {
  if (!Array.isArray(commands)) return ['commands: not a list.'];
  return (commands as readonly Partial<Plugin['commands'][number]>[]).flatMap(({ name, usage, run }) => {
    if (typeof name !== 'string' || !/^[a-z][a-z0-9-]*$/.test(name)) {
      return [`commands: ${JSON.stringify(name)} is not one lower-case word.`];
    }
    if (taken.has(name)) return [`commands: ${name} is a command of the server itself.`];
    if (typeof run !== 'function' || !Array.isArray(usage))
      return [`commands: ${name} needs usage, a list of lines, and run, a function.`];
    return [];
  });
}

const has = (value: unknown, key: string): boolean => typeof value === 'object' && value !== null && key in value;
