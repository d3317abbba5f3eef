import { setTimeout as pause } from 'node:timers/promises';

const timeoutMs = 10_000;

/** Looks until it finds something; for what has no event to wait for. */
export async function until<T>(what: string, look: () => T | undefined | Promise<T | undefined>): Promise<T> {
  const end = performance.now() + timeoutMs;
  while (performance.now() < end) {
    const found = await look();
    if (found !== undefined) return found;
    await pause(5);
  }
  throw new Error(`waited in vain for ${what}`);
}
