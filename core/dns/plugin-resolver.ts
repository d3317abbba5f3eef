import type { Clock } from '../clock.js';
import { CachingResolver } from './caching-resolver.js';
import type { Resolver } from './resolver.js';
import { SystemResolver } from './system-resolver.js';

/** Whom plugins ask: the name servers of the system, sooner tired of waiting than a hook. */
export const pluginResolver = (clock: Clock): Resolver =>
  new CachingResolver(new SystemResolver({ timeoutMs: 1500, tries: 2 }), {}, clock);
