import {
  arch,
  availableParallelism,
  cpus,
  endianness,
  freemem,
  loadavg,
  release,
  tmpdir,
  totalmem,
  type,
  uptime,
} from 'node:os';
import { join } from 'node:path';
import { getHeapSpaceStatistics, getHeapStatistics } from 'node:v8';
import type { Configuration } from '../../../core/contracts/server.js';
import { printable } from '../../../core/text/format.js';
import { processLimits } from '../../../core/net/process-limits.js';
import { MASK, redactText } from '../../../core/log/redact.js';
import { packageRoot, version } from '../../../core/host/installation.js';

export interface PropertySection {
  readonly name: string;
  readonly properties: readonly { readonly name: string; readonly value: string }[];
}

type Values = Readonly<Record<string, string | number | boolean | undefined>>;

/** Node's counterpart of Java's system properties. Without the environment. */
export function systemProperties(configuration: Pick<Configuration, 'data' | 'file'>): readonly PropertySection[] {
  return [
    section('postern', {
      version,
      'config.file': configuration.file ?? 'none',
      'data.folder': configuration.data,
      'log.folder': join(configuration.data, 'logs'),
      'package.folder': packageRoot,
      'temporary.folder': tmpdir(),
    }),
    section('process', {
      pid: process.pid,
      ppid: process.ppid,
      'exec.path': process.execPath,
      'exec.arguments': argumentsOf(process.execArgv),
      arguments: argumentsOf(process.argv.slice(1)),
      'working.folder': process.cwd(),
      title: process.title,
      'uptime.seconds': Math.floor(process.uptime()),
      'user.id': process.getuid?.(),
      'group.id': process.getgid?.(),
      umask: process.umask().toString(8).padStart(4, '0'),
    }),
    section('limits', processLimits()),
    section('memory', { ...process.memoryUsage() }),
    section('resources', { ...process.resourceUsage() }),
    section('node', {
      version: process.version,
      platform: process.platform,
      ...Object.fromEntries(Object.entries(process.versions).filter(([name]) => name !== 'node')),
      'buffer.endianness': endianness(),
    }),
    section('v8', {
      ...Object.fromEntries(Object.entries(getHeapStatistics())),
      ...Object.fromEntries(
        getHeapSpaceStatistics().map((space) => [`space.${space.space_name}.used`, space.space_used_size]),
      ),
    }),
    section('os', {
      type: type(),
      release: release(),
      arch: arch(),
      cpus: cpus().length,
      'cpu.model': cpus()[0]?.model.trim(),
      'cpus.available': availableParallelism(),
      'memory.total': totalmem(),
      'memory.free': freemem(),
      'memory.constrained': process.constrainedMemory(),
      load: loadavg()
        .map((load) => load.toFixed(2))
        .join(' '),
      'uptime.seconds': Math.floor(uptime()),
    }),
    section('locale', { ...Intl.DateTimeFormat().resolvedOptions(), 'icu.version': process.versions['icu'] }),
  ];
}

const section = (name: string, values: Values): PropertySection => ({
  name,
  properties: Object.entries(values)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => ({ name: `${name}.${key}`, value: printable(redactText(String(value))) })),
});

/** Options whose values are paths, ports and sizes; for others only the name is shown. */
const open = new Set(['--config', '--data', '--http-port', '--smtp-port', '--max-old-space-size', '--stack-size']);

/** A command line with the values of harmless options, the program and its command. */
export function argumentsOf(given: readonly string[]): string {
  return given
    .map((argument, i) => {
      const [name = '', ...value] = argument.split('=');
      if (argument.startsWith('-')) return value.length === 0 || open.has(name) ? argument : `${name}=${MASK}`;
      const harmless = i === 0 || (i === 1 && argument === 'start') || open.has(given[i - 1] ?? '');
      return harmless ? argument : MASK;
    })
    .join(' ');
}
