import { acceptance } from './acceptance.js';
import { aging } from './aging.js';
import type { OpenQueueHarness, TestRegistrar } from './harness.js';
import { leasing } from './leasing.js';
import { listing } from './listing.js';
import { mutating } from './mutating.js';
import { restarting } from './restarting.js';
import { settling } from './settling.js';
import { sharing } from './sharing.js';
import { telling } from './telling.js';

/** Registers the tests that every relay queue must pass. */
export function relayQueueContract(test: TestRegistrar, open: OpenQueueHarness): void {
  acceptance(test, open);
  leasing(test, open);
  settling(test, open);
  mutating(test, open);
  aging(test, open);
  listing(test, open);
  restarting(test, open);
  sharing(test, open);
  telling(test, open);
}
