import { openSync, readSync } from 'node:fs';

/** Something that is given bytes of strangers: with the largest input that is taken, none that is known to be slow. */
export interface HoldUpRow {
  readonly what: string;
  readonly given: string;
  /** The bytes are those of operators, whose requests may take longer. */
  readonly isOfOperator?: true;
  /** Makes the input; what it returns is measured. */
  readonly prepare: () => () => unknown;
}

const runs = 5;

/** The longest time for which the work holds the event loop, in milliseconds: the least of some runs, without the first. */
export async function holdUpOf({ prepare }: HoldUpRow): Promise<number> {
  const work = prepare();
  const holds: number[] = [];
  for (let run = 0; run <= runs; run += 1) holds.push(await heldBy(work));
  return Math.min(...holds.slice(1));
}

/** Looks in every turn of the loop. Time for which other programs had the processor does not count. */
async function heldBy(work: () => unknown): Promise<number> {
  let longest = 0;
  let isOver = false;
  let last = { now: performance.now(), waited: waitedMs() };
  const look = (): void => {
    const next = { now: performance.now(), waited: waitedMs() };
    longest = Math.max(longest, next.now - last.now - (next.waited - last.waited));
    last = next;
  };
  const watch = (): void => {
    look();
    if (!isOver) setImmediate(watch);
  };
  setImmediate(watch);
  await new Promise((resolve) => setImmediate(resolve));
  look();
  longest = 0;
  await work();
  look();
  isOver = true;
  return longest;
}

const buffer = Buffer.alloc(100);
let statistics: number | undefined;

/** Milliseconds that the main thread has waited for a processor since it began (Linux); 0 where that is not told. */
function waitedMs(): number {
  try {
    statistics ??= openSync('/proc/self/schedstat', 'r');
    const length = readSync(statistics, buffer, 0, buffer.length, 0);
    return Number(buffer.toString('latin1', 0, length).split(' ')[1]) / 1e6;
  } catch {
    return 0;
  }
}
