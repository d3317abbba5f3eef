import { readFileSync } from 'node:fs';

/** Linux counts in hundredths of a second, whatever its own clock does. */
const ticksPerSecond = 100;

/** Seconds of processor that a process has used, in its own code and in the system; NaN where that cannot be known. */
export function processorTimes(pid: number): { readonly user: number; readonly system: number } {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ');
    return { user: Number(fields[11]) / ticksPerSecond, system: Number(fields[12]) / ticksPerSecond };
  } catch {
    return { user: Number.NaN, system: Number.NaN };
  }
}

/** Both together. */
export function processorSeconds(pid: number): number {
  const { user, system } = processorTimes(pid);
  return user + system;
}
