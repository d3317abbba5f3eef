import { z } from 'zod';
import type { Clock } from '../../core/clock.js';
import { faultCode } from '../../core/disk/fault.js';
import { readLock } from '../../core/disk/lock.js';
import { ownerOf } from '../../core/cli/owner-call.js';
import type { OwnerState } from './patient.js';

/** A server that turns at all answers within that time. */
const patienceMs = 3000;

const Health = z.object({
  components: z.record(
    z.string(),
    z.object({ status: z.enum(['up', 'degraded', 'down']), why: z.string().nullable(), since: z.string() }),
  ),
});

/** Who owns the data folder, and whether it answers. */
export async function lookAtOwner(data: string, clock: Clock): Promise<OwnerState> {
  const lock = await readLock(data).catch((error: unknown) => ({ code: faultCode(error) ?? 'unreadable' }));
  if (lock === undefined) return { state: 'none' };
  if ('code' in lock) return { state: 'hidden', code: lock.code };
  if (lock.http === null || lock.token === null) return { state: 'starting', lock };
  try {
    const call = await ownerOf(data, patienceMs);
    if (call === undefined) return { state: 'none' };
    const began = clock.monotonic();
    const { status, body } = await call('GET', '/health/extended');
    const ms = Math.round(clock.monotonic() - began);
    // Without the plugin that has the page it answers all the same.
    const health = Health.safeParse(body).data ?? { components: {} };
    if (status >= 500 && status !== 503) return { state: 'silent', lock, why: `its health page answers ${status}` };
    return { state: 'answers', lock, call, ms, health };
  } catch {
    return { state: 'silent', lock, why: `it does not answer at ${lock.http} within ${patienceMs / 1000} s` };
  }
}
