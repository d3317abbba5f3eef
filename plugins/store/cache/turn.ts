import { setImmediate } from 'node:timers/promises';

/** So long one may work before others have a turn. */
const sliceMs = 8;

/** Lets others have a turn when it is time: to be awaited between small pieces of work. */
export function turns(): () => Promise<void> {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < sliceMs) return;
    await setImmediate();
    began = performance.now();
  };
}
