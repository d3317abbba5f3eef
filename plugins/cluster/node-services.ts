import type { AttemptLimits } from '../../core/contracts/cluster.js';
import type { PluginContext } from '../../core/plugin.js';
import { DatabaseAnswers } from './database-answers.js';
import { DatabaseDocuments } from './database-documents.js';
import { DatabaseUsers } from './database-users.js';
import { openCopies } from './node-copies.js';
import type { ClusterNode } from './node.js';
import { NodeDuties } from './node-duties.js';
import { SharedAttempts } from './shared-attempts.js';
import { NodeShares } from './site-shares.js';

export { ClusterNode } from './node.js';

/** Changes that were not announced are found within this time. Seconds. */
const lookSeconds = 30;

/** The services of a node, looked after at intervals. */
export async function provideServices(
  { every, folder, log, onClose }: Pick<PluginContext, 'every' | 'folder' | 'log' | 'onClose'>,
  node: ClusterNode,
  limits: AttemptLimits,
) {
  const copies = await openCopies(await folder('cluster'));
  const documents = new DatabaseDocuments(node, copies.documents);
  const duties = new NodeDuties(node);
  const siteShares = new NodeShares(node);
  const userRecords = new DatabaseUsers(node, copies.users);
  const keptAnswers = new DatabaseAnswers(node, log);
  const attempts = new SharedAttempts(node, limits);
  /** While the database is away, health says so. */
  const whileThere = (work: () => Promise<void>) => async (): Promise<void> => {
    if (node.fault === undefined && node.session !== undefined) await work();
  };
  every(
    1,
    whileThere(() => siteShares.look()),
  );
  every(
    1,
    whileThere(() => attempts.exchange()),
  );
  every(
    5,
    whileThere(() => duties.take()),
  );
  every(
    lookSeconds,
    whileThere(() => documents.look()),
  );
  every(lookSeconds, async () => {
    await userRecords.pull().catch(() => undefined);
    await userRecords.save();
  });
  onClose(() => userRecords.save());
  every(
    600,
    whileThere(() => keptAnswers.forget()),
  );
  every(
    600,
    whileThere(() => attempts.forget()),
  );
  await userRecords
    .pull()
    .catch((error: unknown) => log.error({ err: error }, 'the users of the cluster cannot be read now'));
  await userRecords.save();
  return { documents, duties, siteShares, userRecords, keptAnswers };
}
