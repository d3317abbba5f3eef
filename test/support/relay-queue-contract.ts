import { acceptance } from './relay-queue/acceptance.js';
import { leasing } from './relay-queue/leasing.js';
import { settling } from './relay-queue/settling.js';
import { listing } from './relay-queue/listing.js';
import { mutating } from './relay-queue/mutating.js';
import { aging } from './relay-queue/aging.js';
import { restarting } from './relay-queue/restarting.js';
import { telling } from './relay-queue/telling.js';
import type { OpenQueueFixture } from './relay-queue/fixture.js';

/** Registers the tests that every relay queue must pass. */
export function relayQueueContract(open: OpenQueueFixture): void {
  acceptance(open);
  leasing(open);
  settling(open);
  mutating(open);
  aging(open);
  listing(open);
  restarting(open);
  telling(open);
}
