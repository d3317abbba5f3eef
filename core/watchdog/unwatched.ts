import type { StallWatch } from '../contracts/stall-watch.js';

/** Where no thread watches, nothing is seen. */
export const unwatched: StallWatch = { alwaysAboveMs: 0, observe: () => () => undefined, standStill: (run) => run() };
