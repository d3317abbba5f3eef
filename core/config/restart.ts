import { isDeepStrictEqual } from 'node:util';
import type { HttpSettings } from '../http/options.js';
import type { SmtpSettings } from '../smtp/options.js';
import type { LoadedConfiguration } from './load.js';
import type { KeyPath } from './positions.js';

/** What the server reads once, when it starts; with everything below. */
const readAtStart: readonly KeyPath[] = [
  'hostname',
  'data',
  'durability',
  'log',
  'sitePlugins',
  'http.host',
  'http.port',
  'http.accounts',
  'http.limits.headerBytes',
  'http.limits.loginFailures',
  'http.limits.loginWindowSeconds',
  'http.limits.credentialSeconds',
];

export interface RestartInput {
  /** What the server started with. */
  readonly started: LoadedConfiguration;
  readonly next: LoadedConfiguration;
  /** Whether the plugin runs and takes new options while it does. */
  readonly takesOptions: (plugin: string) => boolean;
}

/** Whether a change of that key waits for a restart. */
export function waitsForRestart(key: KeyPath, { started, next, takesOptions }: RestartInput): boolean {
  const [first, second = '', third = '', last] = key.split('.');
  if (first === 'plugins') return !takesOptions(second) || !next.options.has(second);
  if (first === 'smtp' && second === 'listeners') {
    return !(last === 'key' || last === 'cert') || !sameDoor(started, next, Number(third));
  }
  return readAtStart.some((fixed) => key === fixed || key.startsWith(`${fixed}.`));
}

/** A listener takes another certificate, and no other change. */
function sameDoor(started: LoadedConfiguration, next: LoadedConfiguration, index: number): boolean {
  const old = started.settings.smtp.listeners[index];
  const now = next.settings.smtp.listeners[index];
  return old !== undefined && now !== undefined && old.name === now.name && old.tls === now.tls && old.tls !== 'none';
}

/** The new settings, and the old ones where only a restart can change them. */
export function smtpInForce(started: LoadedConfiguration, next: LoadedConfiguration): SmtpSettings {
  const listeners = started.settings.smtp.listeners.map((listener, index) => {
    const { key, cert } = next.settings.smtp.listeners[index] ?? {};
    return sameDoor(started, next, index) && key !== undefined && cert !== undefined
      ? { ...listener, key, cert }
      : listener;
  });
  return { ...next.settings.smtp, listeners };
}

/** The same for HTTP. */
export function httpInForce(started: LoadedConfiguration, next: LoadedConfiguration): HttpSettings {
  const { host, port, accounts, limits } = started.settings.http;
  const { headerBytes, loginFailures, loginWindowSeconds, credentialSeconds } = limits;
  return {
    ...next.settings.http,
    host,
    port,
    accounts,
    limits: { ...next.settings.http.limits, headerBytes, loginFailures, loginWindowSeconds, credentialSeconds },
  };
}

/** Keys whose values differ, in the order of the newer side. */
export function differingKeys(
  old: ReadonlyMap<KeyPath, unknown>,
  now: ReadonlyMap<KeyPath, unknown>,
): readonly KeyPath[] {
  return [...new Set([...now.keys(), ...old.keys()])].filter((key) => !isDeepStrictEqual(old.get(key), now.get(key)));
}
