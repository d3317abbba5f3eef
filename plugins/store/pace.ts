import { setImmediate } from 'node:timers/promises';

/** Long work on many items, in strides between which everybody else has a turn. */
const stride = 4000;

/** Like `items.map(make)`, paced; what `make` gives undefined for is left out. */
export async function pacedMap<T, R>(items: readonly T[], make: (item: T) => R | undefined): Promise<R[]> {
  const made: R[] = [];
  for (let start = 0; start < items.length; start += stride) {
    if (start > 0) await setImmediate();
    for (const item of items.slice(start, start + stride)) {
      const one = make(item);
      if (one !== undefined) made.push(one);
    }
  }
  return made;
}

/** Like `items.toSorted(compare)`, paced: sorted strides are merged, two by two. */
export async function pacedSort<T>(items: readonly T[], compare: (a: T, b: T) => number): Promise<readonly T[]> {
  let runs: (readonly T[])[] = [];
  for (let start = 0; start < items.length; start += stride) {
    if (start > 0) await setImmediate();
    runs.push(items.slice(start, start + stride).sort(compare));
  }
  while (runs.length > 1) {
    const merged: (readonly T[])[] = [];
    for (let pair = 0; pair < runs.length; pair += 2) {
      merged.push(await merge(runs[pair] ?? [], runs[pair + 1] ?? [], compare));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

async function merge<T>(
  left: readonly T[],
  right: readonly T[],
  compare: (a: T, b: T) => number,
): Promise<readonly T[]> {
  const merged: T[] = [];
  let i = 0;
  let j = 0;
  while (i < left.length && j < right.length) {
    const [a, b] = [left[i] as T, right[j] as T];
    if (compare(a, b) <= 0) {
      merged.push(a);
      i++;
    } else {
      merged.push(b);
      j++;
    }
    if (merged.length % stride === 0) await setImmediate();
  }
  return merged.concat(left.slice(i), right.slice(j));
}
