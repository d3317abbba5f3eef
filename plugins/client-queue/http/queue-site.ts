import type { Clock } from '../../../core/clock.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue.js';
import type { Intake } from '../case/intake.js';
import type { Sending } from '../case/sending.js';
import type { TransactionGround } from '../case/transactions.js';
import type { UploadShelf } from '../case/upload-shelf.js';
import type { DestinationControls } from '../delivery/destination-controls.js';
import type { StsPolicies } from '../mta-sts/sts-policies.js';
import type { SiteState } from '../delivery/outbound.js';
import type { ReplyClassification, ReplyRule } from '../delivery/reply-classification.js';
import type { Sites } from '../delivery/sites.js';

export const group = 'Outbound';

/** What the endpoints of the queue stand on. */
export interface QueueSite {
  readonly queue: RelayQueue;
  readonly controls: DestinationControls;
  /** Which destinations have the same servers. */
  readonly sites: Pick<Sites, 'peek'>;
  /** Keys of those that are configured. */
  readonly siteNames: () => readonly string[];
  /** What holds for a site, and how it stands with it. */
  readonly pace: (site: string) => SiteState;
  /** What domains demand of the mail to them. */
  readonly policies: Pick<StsPolicies, 'peek'>;
  readonly clock: Clock;
  /** What was learnt of the servers of these destinations counts no more; of all when undefined. */
  readonly forgetFailures: (destinations: readonly string[] | undefined) => void;
  /** Somebody is to be told of a failure at once. */
  readonly tellSenders: () => void;
  /** A sentence about an entry that was set aside as broken. */
  readonly quarantineNote: (uid: string) => Promise<string | undefined>;
}

/** What the endpoints that send stand on. */
export interface SendingSite {
  readonly sending: Sending;
  readonly intake: Intake;
  readonly uploads: UploadShelf;
  /** As it is now. */
  readonly ground: () => TransactionGround;
  readonly routes: () => readonly string[];
  /** Open entries. */
  readonly queueSize: () => number;
}

export interface RepliesSite {
  readonly replies: () => { readonly classification: ReplyClassification; readonly rules: readonly ReplyRule[] };
}

export type ClientSite = QueueSite & SendingSite & RepliesSite;
