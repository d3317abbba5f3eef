import type { AttemptLimits } from '../../core/contracts/cluster.js';
import type { LocalDelivery } from '../../core/contracts/local-delivery.js';
import { allMailboxesHere } from '../../core/contracts/mailbox-owners.js';
import type { PluginContext } from '../../core/plugin.js';
import { DatabaseAnswers } from './database-answers.js';
import { DatabaseDocuments } from './database-documents.js';
import { DatabaseUsers } from './database-users.js';
import { mailboxHealth, NodeDirectory } from './mailboxes/node-directory.js';
import { provideMailboxes } from './mailboxes/provide-mailboxes.js';
import { openCopies } from './node-copies.js';
import type { ClusterNode } from './node.js';
import { NodeDuties } from './node-duties.js';
import type { ClusterSettings } from './options.js';
import { SharedAttempts } from './shared-attempts.js';
import { NodeShares } from './site-shares.js';

export { ClusterNode } from './node.js';
export { transferQueue } from './queue-transfer.js';

/** Changes that were not announced are found within this time. Seconds. */
const lookSeconds = 30;

interface ServicesInput {
  readonly node: ClusterNode;
  readonly limits: AttemptLimits;
  readonly settings: Pick<ClusterSettings, 'mailboxes' | 'peers'>;
  readonly local: Pick<LocalDelivery, 'deliver'>;
  /** Of the configuration. */
  readonly file: string | null;
}

/** The services of a node, looked after at intervals. */
export async function provideServices(
  context: PluginContext,
  { node, limits, settings: { mailboxes, peers }, local, file }: ServicesInput,
) {
  const { every, folder, health, log, onClose } = context;
  const copies = await openCopies(await folder('cluster'));
  const nodes = new NodeDirectory(node, copies.owners.data.addresses);
  const owned =
    mailboxes === 'owner' && peers !== undefined
      ? provideMailboxes(context, { node, nodes, peers, copy: copies.owners, local, file })
      : { owners: allMailboxesHere, assign: () => Promise.resolve() };
  health.check('mailboxes of the cluster', () => mailboxHealth(nodes.living, '/cluster'));
  const documents = new DatabaseDocuments(node, copies.documents);
  const duties = new NodeDuties(node);
  const siteShares = new NodeShares(node);
  const userRecords = new DatabaseUsers(node, copies.users, owned.assign);
  const keptAnswers = new DatabaseAnswers(node, log);
  const attempts = new SharedAttempts(node, limits);
  /** While the database is away, health says so. */
  const regularly = (seconds: number, work: () => Promise<void>): void =>
    every(seconds, async () => {
      if (node.fault === undefined && node.session !== undefined) await work();
    });
  regularly(1, () => siteShares.look());
  regularly(1, () => attempts.exchange());
  regularly(5, () => duties.take());
  regularly(5, () => nodes.look());
  regularly(lookSeconds, () => documents.look());
  regularly(lookSeconds, () => userRecords.pull());
  regularly(600, () => keptAnswers.forget());
  regularly(600, () => attempts.forget());
  every(lookSeconds, () => userRecords.save());
  onClose(() => userRecords.save());
  await userRecords
    .pull()
    .catch((error: unknown) => log.error({ err: error }, 'the users of the cluster cannot be read now'));
  await userRecords.save();
  await nodes.look().catch(() => undefined);
  return { documents, duties, siteShares, userRecords, keptAnswers, mailboxOwners: owned.owners };
}
