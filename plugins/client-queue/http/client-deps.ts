import { resolve } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import type { BulkJobs } from '../queue/bulk-jobs.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import type { MessageViewer } from '../../../core/contracts/message-viewer.js';
import type { Configuration } from '../../../core/contracts/server.js';
import type { SubmissionService } from '../../../core/contracts/submission.js';
import type { HopFinder } from '../../../core/dns/next-hop.js';
import { openSession } from '../../../core/smtp/client/opening.js';
import { Intake } from '../case/intake.js';
import { Sending } from '../case/sending.js';
import { CaseFiles, type CaseContext } from '../case/transactions.js';
import { UploadStore } from '../case/upload-store.js';
import type { DestinationControls } from '../delivery/destination-controls.js';
import type { OutboundSettings, SiteState } from '../delivery/outbound.js';
import { relayTarget } from '../delivery/relay-hook.js';
import { type ReplyClassification, type ReplyRule, replyRules } from '../delivery/reply-classification.js';
import { siteKey } from '../delivery/destination.js';
import type { NextHops } from '../delivery/next-hops.js';
import type { Sites } from '../delivery/sites.js';
import type { StsPolicies } from '../mta-sts/sts-policies.js';

export const outboundGroup = 'Outbound';

/** Dependencies of the queue endpoints. */
export interface QueueDeps {
  readonly queue: RelayQueue;
  readonly controls: DestinationControls;
  /** Groups destinations with the same servers. */
  readonly sites: Pick<Sites, 'peek'>;
  /** Keys of the configured sites. */
  readonly siteNames: () => readonly string[];
  /** Limits and current state of a site. */
  readonly pace: (site: string) => SiteState;
  /** MTA-STS policies of domains. */
  readonly policies: Pick<StsPolicies, 'peek'>;
  /** Servers of destinations as found last. */
  readonly hops: Pick<NextHops, 'last'>;
  readonly clock: Clock;
  /** Forgets connection failures of the servers of these destinations; of all when undefined. */
  readonly forgetFailures: (destinations: readonly string[] | undefined) => void;
  /** Actions on many entries. */
  readonly jobs: BulkJobs;
  /** Shows messages; undefined without mailboxes. */
  readonly viewer: MessageViewer | undefined;
  /** Sends pending notifications now. */
  readonly sendNotices: () => void;
  /** The note about a quarantined entry. */
  readonly quarantineNote: (uid: string) => Promise<string | undefined>;
}

/** Dependencies of the sending endpoints. */
export interface SendingDeps {
  readonly sending: Sending;
  readonly intake: Intake;
  readonly uploads: UploadStore;
  /** The current settings for cases. */
  readonly caseContext: () => CaseContext;
  readonly routes: () => readonly string[];
  /** Number of open entries. */
  readonly queueSize: () => number;
}

export interface RepliesDeps {
  readonly replies: () => { readonly classification: ReplyClassification; readonly rules: readonly ReplyRule[] };
}

export type ClientDeps = QueueDeps & SendingDeps & RepliesDeps;

interface ClientOptions {
  readonly queue: RelayQueue;
  readonly controls: DestinationControls;
  readonly settings: OutboundSettings;
  readonly finder: HopFinder;
  readonly policies: ClientDeps['policies'];
  readonly hops: ClientDeps['hops'];
  readonly submission: SubmissionService;
  readonly configuration: Configuration;
  readonly clock: Clock;
  readonly sites: ClientDeps['sites'];
  readonly pace: ClientDeps['pace'];
  readonly forgetFailures: ClientDeps['forgetFailures'];
  readonly sendNotices: ClientDeps['sendNotices'];
  readonly jobs: ClientDeps['jobs'];
  readonly viewer: ClientDeps['viewer'];
  /** Absolute path of the folder for uploads in use. */
  readonly uploads: string;
}

/** Larger files of the case folder are refused. */
const maxFileBytes = 50 * 1024 * 1024;

/** Builds the dependencies of the endpoints below `/client`. */
export function clientDeps(input: ClientOptions): ClientDeps {
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
    hops: input.hops,
    siteNames: () => Object.keys(current().sites).map(siteKey),
    pace: input.pace,
    forgetFailures: input.forgetFailures,
    sendNotices: input.sendNotices,
    jobs: input.jobs,
    viewer: input.viewer,
    quarantineNote: async (uid) => {
      const found = (await queue.quarantine?.list())?.find(
        ({ name }) => /^[0-9a-z]+-(.*)\.eml$/.exec(name)?.[1] === uid,
      );
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
    caseContext: () => ({ files: files(), hostname, now: () => new Date(clock.now()) }),
    routes: () => Object.keys(current().routes),
    queueSize: () => queue.size,
  };
}
