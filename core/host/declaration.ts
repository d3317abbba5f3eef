import { isAbsolute } from 'node:path';
import { serverFlags } from '../cli/command.js';
import type { Services } from '../contracts/service.js';

/** Fields of a plugin as JavaScript may have set them. */
type Declaration = Readonly<Record<'needs' | 'uses' | 'provides', Services>> &
  Readonly<Record<'name' | 'options' | 'setup' | 'views' | 'assets' | 'commands' | 'reload', unknown>>;

/** In logs, lists and metrics such a plugin would be mistaken for the server. */
const ownNames: ReadonlySet<unknown> = new Set(['core', 'http', 'smtp']);

/**
 * Faults of a declaration. Site plugins are JavaScript: this checks what the compiler checks for ours.
 *
 * @param taken names of commands that it cannot have
 */
export function declarationComplaints(plugin: Declaration, taken: ReadonlySet<string> = new Set()): readonly string[] {
  const complaints: string[] = [];
  const { name, options, setup, views, assets, commands, reload } = plugin;
  if (typeof name !== 'string' || !/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(name)) {
    complaints.push(`name: ${JSON.stringify(name)} is not lower-case words with "-" between them, such as rate-limit.`);
  }
  if (ownNames.has(name))
    complaints.push(`name: ${String(name)} is reserved for a part of the server: choose another.`);
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
  return (commands as readonly Readonly<Record<'name' | 'usage' | 'run' | 'ownFlags', unknown>>[]).flatMap(
    ({ name, usage, run, ownFlags }) => {
      if (typeof name !== 'string' || !/^[a-z][a-z0-9-]*$/.test(name)) {
        return [`commands: ${JSON.stringify(name)} is not one lower-case word.`];
      }
      if (taken.has(name)) return [`commands: ${name} is a command of the server itself.`];
      if (typeof run !== 'function' || !Array.isArray(usage))
        return [`commands: ${name} needs usage, a list of lines, and run, a function.`];
      return Object.entries(ownFlags ?? {}).flatMap(([flag, about]) => ownFlagComplaints(name, flag, about));
    },
  );
}

function ownFlagComplaints(command: string, flag: string, about: unknown): readonly string[] {
  const where = `commands: ${command}, --${flag}`;
  if (!/^[a-z][a-z0-9]+(-[a-z0-9]+)*$/.test(flag)) return [`${where} is not lower-case words with "-" between them.`];
  if (Object.hasOwn(serverFlags, flag)) return [`${where} is a flag of the server itself.`];
  return has(about, 'summary') ? [] : [`${where} has no summary.`];
}

const has = (value: unknown, key: string): boolean => typeof value === 'object' && value !== null && key in value;

/** Version of the plugin kit: a new minor version adds, a new major one removes. */
export const kitVersion = '1.0';

/** Oldest and newest kit that this server supports. */
interface KitRange {
  readonly oldest: string;
  readonly newest: string;
}

const spoken: KitRange = { oldest: '1.0', newest: kitVersion };

/**
 * Why a plugin for that version of the kit cannot run here, and what to do; undefined when it can.
 *
 * @param wanted `major.minor`, as the plugin declares; a whole number is a major version
 */
export function kitComplaint(wanted: unknown, { oldest, newest }: KitRange = spoken): string | undefined {
  const version = parse(wanted);
  const speaks = oldest === newest ? `version ${newest}` : `versions ${oldest} to ${newest}`;
  if (version === undefined) {
    return `names ${JSON.stringify(wanted) ?? 'nothing'} as its version of the plugin kit; write kit: '${newest}'.`;
  }
  const written = `is written for version ${String(wanted)} of the plugin kit, and this server speaks ${speaks}`;
  if (isBelow(parse(newest), version)) return `${written}: update Postern, or use an older version of the plugin.`;
  if (isBelow(version, parse(oldest))) return `${written}: use a newer version of the plugin.`;
  return undefined;
}

type Version = readonly [major: number, minor: number];

function parse(version: unknown): Version | undefined {
  const text = typeof version === 'number' ? `${version}.0` : version;
  const [, major, minor] = (typeof text === 'string' && /^(\d{1,4})\.(\d{1,4})$/.exec(text)) || [];
  return major === undefined || minor === undefined ? undefined : [Number(major), Number(minor)];
}

const isBelow = ([major, minor]: Version = [0, 0], [otherMajor, otherMinor]: Version = [0, 0]): boolean =>
  major < otherMajor || (major === otherMajor && minor < otherMinor);

export const definitionKeys = {
  name: true,
  options: true,
  needs: true,
  uses: true,
  provides: true,
  views: true,
  assets: true,
  commands: true,
  checks: true,
  verify: true,
  kit: true,
  reload: true,
  setup: true,
} as const;
