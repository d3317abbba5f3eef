import { join } from 'node:path';
import type { AttemptLimits } from '../../core/contracts/cluster.js';
import type { Configuration, HealthOverview } from '../../core/contracts/server.js';
import type { PluginContext } from '../../core/plugin.js';
import { DatabaseAnswers } from './database-answers.js';
import { ConfigurationSets } from './configuration/sets.js';
import { DatabaseAudit } from './database-audit.js';
import { DatabaseDocuments } from './database-documents.js';
import { DatabaseUsers } from './database-users.js';
import { openCopies } from './node-copies.js';
import type { ClusterNode } from './node.js';
import { NodeDuties } from './node-duties.js';
import { SetSource } from './configuration/set-source.js';
import { SharedAttempts } from './shared-attempts.js';
import { NodeShares } from './site-shares.js';

export { ClusterNode } from './node.js';

/** Changes that were not announced are found within this time. Seconds. */
const lookSeconds = 30;

interface CoreServices {
  readonly attemptLimits: AttemptLimits;
  readonly configuration: Configuration;
  readonly healthOverview: HealthOverview;
}

/** The services of a node, looked after at intervals. */
export async function provideServices(
  { clock, every, folder, log, onClose }: Pick<PluginContext, 'clock' | 'every' | 'folder' | 'log' | 'onClose'>,
  node: ClusterNode,
  { attemptLimits: limits, configuration: { data, auditBytes = Infinity }, healthOverview: health }: CoreServices,
) {
  const copies = await openCopies(await folder('cluster'));
  const documents = new DatabaseDocuments(node, copies.documents);
  const duties = new NodeDuties(node);
  const siteShares = new NodeShares(node);
  const userRecords = new DatabaseUsers(node, copies.users);
  const keptAnswers = new DatabaseAnswers(node, log);
  const auditReader = new DatabaseAudit({ cluster: node, folder: join(data, 'logs'), maxBytes: auditBytes, log });
  const attempts = new SharedAttempts(node, limits);
  const sets = new ConfigurationSets(node.database, () => node.clock.now());
  const configurationSets = new SetSource({ cluster: node, sets, health, clock, log });
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
  const provided = { documents, duties, siteShares, userRecords, keptAnswers, auditReader, configurationSets };
  return { provided, sets };
}
