import { resolve } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue.js';
import type { Configuration } from '../../../core/contracts/server.js';
import type { SubmissionService } from '../../../core/contracts/submission.js';
import type { HopFinder } from '../../../core/dns/next-hop.js';
import { openSession } from '../../../core/smtp/client/opening.js';
import { Intake } from '../case/intake.js';
import { Sending } from '../case/sending.js';
import { CaseFiles, type CaseContext } from '../case/transactions.js';
import { UploadStore } from '../case/upload-shelf.js';
import type { DestinationControls } from '../delivery/destination-controls.js';
import type { OutboundSettings, SiteState } from '../delivery/outbound.js';
import { relayTarget } from '../delivery/relay-hook.js';
import { type ReplyClassification, type ReplyRule, replyRules } from '../delivery/reply-classification.js';
import { siteKey } from '../delivery/destination.js';
import type { Sites } from '../delivery/sites.js';
import type { StsPolicies } from '../mta-sts/sts-policies.js';

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
  readonly uploads: UploadStore;
  /** As it is now. */
  readonly ground: () => CaseContext;
  readonly routes: () => readonly string[];
  /** Open entries. */
  readonly queueSize: () => number;
}

export interface RepliesSite {
  readonly replies: () => { readonly classification: ReplyClassification; readonly rules: readonly ReplyRule[] };
}

export type ClientSite = QueueSite & SendingSite & RepliesSite;

interface ClientSiteInput {
  readonly queue: RelayQueue;
  readonly controls: DestinationControls;
  readonly settings: OutboundSettings;
  readonly finder: HopFinder;
  readonly policies: ClientSite['policies'];
  readonly submission: SubmissionService;
  readonly configuration: Configuration;
  readonly clock: Clock;
  readonly sites: ClientSite['sites'];
  readonly pace: ClientSite['pace'];
  readonly forgetFailures: ClientSite['forgetFailures'];
  readonly tellSenders: ClientSite['tellSenders'];
  /** Absolute; for messages that are worked on. */
  readonly uploads: string;
}

/** Files of the case folder beyond this are refused. */
const maxFileBytes = 50 * 1024 * 1024;

/** Puts together what the endpoints below `/client` stand on. */
export function clientSite(input: ClientSiteInput): ClientSite {
  const { queue, controls, settings, finder, submission, configuration, clock } = input;
  const { hostname, data } = configuration;
  const current = () => settings.current;
  const files = () => {
    const { cases } = settings.current;
    return new CaseFiles(cases === undefined ? undefined : resolve(data, cases), maxFileBytes);
  };
  return {
    queue,
    controls,
    clock,
    sites: input.sites,
    policies: input.policies,
    siteNames: () => Object.keys(current().sites).map(siteKey),
    pace: input.pace,
    forgetFailures: input.forgetFailures,
    tellSenders: input.tellSenders,
    quarantineNote: async (uid) => {
      const found = (await queue.quarantined()).find(({ name }) => /^[0-9a-z]+-(.*)\.eml$/.exec(name)?.[1] === uid);
      return (
        found &&
        `This entry was found broken and set aside: ${found.reason}. Its files are kept in the quarantine of the queue.`
      );
    },
    replies: () => ({ classification: settings.classification, rules: [...current().replyRules, ...replyRules] }),
    sending: new Sending({ settings: current, finder, hostname: () => hostname, open: openSession }),
    intake: new Intake({
      submission,
      settings: current,
      queueTarget: relayTarget,
      finder,
    }),
    uploads: new UploadStore(input.uploads),
    ground: () => ({ files: files(), hostname, now: () => new Date(clock.now()) }),
    routes: () => Object.keys(current().routes),
    queueSize: () => queue.size,
  };
}
