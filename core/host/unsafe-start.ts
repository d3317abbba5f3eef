import { indispensable, type Program } from './plugin-program.js';
import type { SiteMemory } from './site-memory.js';
import { startError } from '../problem.js';

/**
 * Refuses a start without a plugin of the site that the server must not be without: as its entry says, or as is known from
 * when it ran last.
 *
 * @throws start error
 */
export function refuseUnsafeStart(program: Program, memory: SiteMemory): void {
  for (const { entry, name, why } of program.unloaded) {
    const unknown = [{ name, replaces: false, provides: [] }];
    const known = memory.of(entry.from);
    for (const plugin of known.length === 0 ? unknown : known) {
      const reason = indispensable({ ...plugin, required: entry.required }, program);
      if (reason !== undefined) {
        throw startError(`${why.replace(/\.$/, '')}. The server does not start without it: ${reason}.`);
      }
    }
  }
}
