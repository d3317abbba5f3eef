import type { Clock } from '../clock.js';
import { CachingResolver } from './caching-resolver.js';
import { MailRoutes } from './mail-routes.js';
import { SystemResolver } from './system-resolver.js';

/** Finds servers that an operator has named, by the resolver of the system: none of them is taken for this server itself. */
export function hostRoutes(clock: Clock): MailRoutes {
  const resolver = new CachingResolver(new SystemResolver({}), {}, clock);
  return new MailRoutes({ resolver, ownNames: [], ownAddresses: () => [] });
}
