import { setTimeout as pause } from 'node:timers/promises';

/** Looks until it finds something; for what has no event to wait for. */
export async function until<T>(
  what: string,
  look: () => T | undefined | Promise<T | undefined>,
  timeoutMs = 10_000,
): Promise<T> {
  const end = performance.now() + timeoutMs;
  while (performance.now() < end) {
    const found = await look();
    if (found !== undefined) return found;
    await pause(5);
  }
  throw new Error(`waited in vain for ${what}`);
}

export async function untilTrue(
  what: string,
  check: () => boolean | Promise<boolean>,
  timeoutMs?: number,
): Promise<void> {
  await until(what, async () => (await check()) || undefined, timeoutMs);
}
