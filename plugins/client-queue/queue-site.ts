import type { Clock } from '../../core/clock.js';
import type { RelayQueue } from '../../core/contracts/relay-queue.js';
import type { DestinationControls } from './destination-controls.js';

export const group = 'Outbound';

/** What the endpoints of the queue stand on. */
export interface QueueSite {
  readonly queue: RelayQueue;
  readonly controls: DestinationControls;
  readonly clock: Clock;
  /** A sentence about an entry that was set aside as broken. */
  readonly quarantineNote: (uid: string) => Promise<string | undefined>;
}
