import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../clock.js';
import type { LiveConfiguration } from '../config/live.js';
import type { Timers } from '../metrics/timers.js';
import { CachingResolver } from './caching-resolver.js';
import { DnsLookups } from './lookups.js';
import type { DnsSettings } from './options.js';
import type { Resolver } from './resolver.js';
import { SystemResolver } from './system-resolver.js';

export interface PluginDnsInput {
  readonly live: LiveConfiguration;
  readonly clock: Clock;
  readonly timers: Timers;
  /** In place of the name servers of the configuration. */
  readonly resolver: Resolver | undefined;
}

/** Two tries of one server within the time that a lookup has. */
const timeoutMs = 2000;

/** The DNS for plugins. Other name servers come into force with a reload, and what the old ones said is forgotten. */
export function openPluginDns({ live, clock, timers, resolver }: PluginDnsInput): DnsLookups {
  if (resolver !== undefined) return new DnsLookups({ resolver, timers });
  let settings = live.current.settings.dns;
  const lookups = new DnsLookups({ resolver: resolverOf(settings, clock), timers });
  live.watch(() => {
    const next = live.current.settings.dns;
    if (isDeepStrictEqual(next, settings)) return;
    lookups.use(resolverOf(next, clock));
    settings = next;
  });
  return lookups;
}

const resolverOf = ({ servers }: DnsSettings, clock: Clock): Resolver =>
  new CachingResolver(new SystemResolver({ servers, timeoutMs, tries: 2 }), {}, clock);
