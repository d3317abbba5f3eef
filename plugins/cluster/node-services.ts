import { dirname, join } from 'node:path';
import type { AttemptLimits } from '../../core/contracts/cluster.js';
import type { LocalDelivery } from '../../core/contracts/local-delivery.js';
import type { ForwardedRequests } from '../../core/contracts/other-nodes.js';
import { allMailboxesHere } from '../../core/contracts/mailbox-owners.js';
import type { Configuration, HealthOverview, Lifecycle } from '../../core/contracts/server.js';
import type { PluginContext } from '../../core/plugin.js';
import { DatabaseAnswers } from './shared/idempotency-responses.js';
import { ConfigurationSets } from './configuration/sets.js';
import { DatabaseAudit } from './shared/database-audit.js';
import { DatabaseDocuments } from './shared/database-documents.js';
import { DatabaseSessions } from './shared/browser-sessions.js';
import { DatabaseUsers } from './shared/database-users.js';
import { mailboxHealth, NodeDirectory } from './mailboxes/node-directory.js';
import { PeerListener } from './mailboxes/peer-listener.js';
import { PeerRequests, readForwarder } from './mailboxes/peer-requests.js';
import { readPeerTls } from './mailboxes/peer-tls.js';
import { provideMailboxes } from './mailboxes/provide-mailboxes.js';
import { openCopies } from './shared/node-copies.js';
import type { ClusterNode } from './node.js';
import { NodeDuties } from './shared/node-duties.js';
import { SetSource } from './configuration/set-source.js';
import type { ClusterSettings } from './options.js';
import { askFor, removeOldSessions } from './database/server-state.js';
import { SharedAttempts } from './shared/shared-attempts.js';
import { NodeShares } from './shared/node-shares.js';

export { ClusterNode } from './node.js';
export { transferQueue } from './queue-transfer.js';

/** Changes that were not announced are found within this time. Seconds. */
const lookSeconds = 30;

interface ServicesInput {
  readonly node: ClusterNode;
  readonly settings: Pick<ClusterSettings, 'mailboxes' | 'peers'>;
  readonly attemptLimits: AttemptLimits;
  readonly configuration: Configuration;
  readonly healthOverview: HealthOverview;
  readonly localDelivery: Pick<LocalDelivery, 'deliver'>;
  readonly forwardedRequests: ForwardedRequests;
  readonly lifecycle: Pick<Lifecycle, 'stopping'>;
}

/** The services of a node, looked after at intervals. */
export async function provideServices(context: PluginContext, input: ServicesInput) {
  const { node, settings, attemptLimits, configuration, healthOverview, localDelivery: local } = input;
  const { clock, every, folder, health, log, onClose } = context;
  const { data, auditBytes: maxBytes = Infinity } = configuration;
  const copies = await openCopies(await folder('cluster'));
  const nodes = new NodeDirectory(node, copies.owners.data.addresses);
  const { peers, otherNodes } = openPeers(context, nodes, input);
  const owned =
    settings.mailboxes === 'owner' && peers !== undefined
      ? provideMailboxes(context, { node, nodes, ...peers, copy: copies.owners, local })
      : { owners: allMailboxesHere, assign: () => Promise.resolve() };
  if (settings.mailboxes !== 'owner') await peers?.listener.start();
  health.check('mailboxes of the cluster', () => mailboxHealth(nodes.living, '/cluster'));
  const documents = new DatabaseDocuments(node, copies.documents);
  const duties = new NodeDuties(node);
  const siteShares = new NodeShares(node);
  const userRecords = new DatabaseUsers(node, copies.users, owned.assign);
  const keptAnswers = new DatabaseAnswers(node, log);
  const keptSessions = new DatabaseSessions(node);
  const auditReader = new DatabaseAudit({ cluster: node, folder: join(data, 'logs'), maxBytes, log });
  const attempts = new SharedAttempts(node, attemptLimits);
  const sets = new ConfigurationSets(node.database, () => node.clock.now());
  const configurationSets = new SetSource({ cluster: node, sets, health: healthOverview, clock, log });
  /** While the database is away, health says so. */
  const regularly = (seconds: number, work: () => Promise<void>): void =>
    every(seconds, async () => {
      if (node.fault === undefined && node.session !== undefined) await work();
    });
  regularly(1, () => siteShares.look());
  regularly(1, () => attempts.exchange());
  regularly(1, () => auditReader.copy());
  regularly(1, () => configurationSets.check());
  regularly(lookSeconds, () => configurationSets.lookForNews());
  regularly(5, () => duties.take());
  regularly(5, () => nodes.look());
  regularly(lookSeconds, () => documents.look());
  regularly(lookSeconds, () => userRecords.pull());
  regularly(600, () => keptAnswers.forget());
  regularly(600, () => attempts.forget());
  regularly(600, () => removeOldSessions(askFor(node.database)));
  every(lookSeconds, () => keptSessions.look());
  every(lookSeconds, () => userRecords.save());
  onClose(() => userRecords.save());
  await userRecords
    .pull()
    .catch((error: unknown) => log.error({ err: error }, 'the users of the cluster cannot be read now'));
  await userRecords.save();
  await nodes.look().catch(() => undefined);
  const mailboxOwners = owned.owners;
  return {
    provided: {
      documents,
      duties,
      siteShares,
      userRecords,
      keptAnswers,
      keptSessions,
      auditReader,
      configurationSets,
      mailboxOwners,
      otherNodes,
    },
    sets,
  };
}

/** Both ways between this node and the others; `peers` is undefined where they are not configured. */
function openPeers(
  { log, metrics, onClose }: PluginContext,
  nodes: NodeDirectory,
  { node: { node }, settings, configuration, forwardedRequests: http, lifecycle: { stopping } }: ServicesInput,
) {
  const tls = settings.peers && readPeerTls(settings.peers, dirname(configuration.file ?? './none'));
  const requests = metrics.counter(
    'cluster_forwarded_requests_total',
    'HTTP requests that another node has answered for clients of this one, by class of status; away: it has not.',
    ['node', 'status'],
  );
  const count = (other: string, status: string): void => requests.inc({ node: other, status });
  const otherNodes = new PeerRequests({ node, nodes, tls, count });
  stopping.addEventListener('abort', () => otherNodes.endStreams(), { once: true });
  onClose(() => otherNodes.close());
  if (tls === undefined || settings.peers === undefined) return { otherNodes };
  const listener = new PeerListener({
    settings: settings.peers,
    tls,
    http,
    forwarderOf: (asked) => readForwarder(asked, { node, nodes }),
    log,
  });
  onClose(() => listener.close());
  return { otherNodes, peers: { tls, listener } };
}
