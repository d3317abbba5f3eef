import { readFileSync } from 'node:fs';

/** Linux counts in hundredths of a second, whatever its own clock does. */
const ticksPerSecond = 100;

/** Seconds of processor that these processes, those they have started and those of them that have ended have used; NaN where that cannot be known. */
export function familySeconds(...pids: readonly number[]): number {
  try {
    return pids.reduce((sum, pid) => sum + used(pid) + familySeconds(...childrenOf(pid)), 0);
  } catch {
    return Number.NaN;
  }
}

/** utime, stime, and both of the children that were waited for. */
function used(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
    .replace(/^.*\) /s, '')
    .split(' ');
  return fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0) / ticksPerSecond;
}

function childrenOf(pid: number): readonly number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').trim();
  return text === '' ? [] : text.split(' ').map(Number);
}
