import { isDeepStrictEqual } from 'node:util';
import type { HttpSettings } from '../http/options.js';
import type { LoadedConfiguration } from './load.js';
import type { KeyPath } from './positions.js';

/** What the server reads once, when it starts; with everything below. */
const readAtStart: readonly KeyPath[] = [
  'hostname',
  'data',
  'durability',
  'log',
  'http.host',
  'http.port',
  'http.socket',
  'http.limits.headerBytes',
];

/** Whether a change of that key waits for a restart. @param plugins those of whom only a restart changes anything */
export function waitsForRestart(key: KeyPath, plugins: { has(name: string): boolean }): boolean {
  const [first, second = ''] = key.split('.');
  if (first === 'plugins') return plugins.has(second);
  return readAtStart.some((fixed) => key === fixed || key.startsWith(`${fixed}.`));
}

/** The new settings, and the old ones where only a restart can change them. */
export function httpInForce(started: LoadedConfiguration, next: LoadedConfiguration): HttpSettings {
  const { host, port, socket, limits } = started.settings.http;
  return {
    ...next.settings.http,
    host,
    port,
    socket,
    limits: { ...next.settings.http.limits, headerBytes: limits.headerBytes },
  };
}

/** Keys whose values differ, in the order of the newer side. */
export function differingKeys(
  old: ReadonlyMap<KeyPath, unknown>,
  now: ReadonlyMap<KeyPath, unknown>,
): readonly KeyPath[] {
  return [...new Set([...now.keys(), ...old.keys()])].filter((key) => !isDeepStrictEqual(old.get(key), now.get(key)));
}
