import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';
import { ClusterAnswer, noCluster, readCluster } from '../cluster-answer.js';
import { MailboxState, mailboxState, requestMove } from '../mailboxes/move-request.js';
import { ownersTopic } from '../mailboxes/owner-table.js';
import type { ClusterNode } from '../node.js';
import { type SetsDeps, setEndpoints } from './configuration.js';
import { askFor, forgetNode, setDraining } from '../database/server-state.js';

const group = 'Cluster';

export interface ClusterDeps {
  /** Undefined without a cluster. */
  readonly node: ClusterNode | undefined;
  readonly sessionSeconds: number;
  readonly sets?: SetsDeps;
}

export const clusterEndpoints = (deps: ClusterDeps): readonly AnyEndpoint[] => [
  stateEndpoint(deps),
  ...(['drain', 'undrain'] as const).map((action) => drainEndpoint(action, deps)),
  forgetEndpoint(deps),
  mailboxEndpoint(deps),
  moveEndpoint(deps),
  ...(deps.sets === undefined ? [] : setEndpoints(deps.sets)),
];

const stateEndpoint = ({ node, sessionSeconds }: ClusterDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/cluster',
    summary: 'Nodes of the cluster, and the database that they share',
    group,
    access: 'read',
    answer: ClusterAnswer,
    view: 'cluster.njk',
    cache: 'no-store',
    async handle() {
      if (node === undefined) return noCluster;
      try {
        return await readCluster({ ask: askFor(node.database), host: node.host, node: node.node, sessionSeconds });
      } catch (error) {
        if (node.fault === undefined) throw error;
        return { ...noCluster, configured: true, node: node.node, fault: node.fault };
      }
    },
    page: (model) => ({ ...model, ...tablesOf(model) }),
  });

/** Of tables, the largest ones are shown at once, and those with more dead rows than this. */
const largestTables = 5;
const manyDeadRows = 10_000;

/** For the page: the tables that tell how the database is, and the others. */
function tablesOf({ database }: ClusterAnswer) {
  const telling: object[] = [];
  const others: { readonly bytes: number }[] = [];
  for (const [nth, one] of (database?.tables ?? []).entries()) {
    const present = one.table === database?.presentBodyTable;
    const isTelling = nth < largestTables || present || one.deadRows > manyDeadRows;
    (isTelling ? telling : others).push({ ...one, present });
  }
  return { telling, others, otherBytes: others.reduce((sum, { bytes }) => sum + bytes, 0) };
}

const Body = z.strictObject({ node: z.string().min(1).max(63).describe('Name of the node') });
const Changed = z.object({ node: z.string(), state: z.enum(['draining', 'up', 'forgotten']) });

const drainEndpoint = (action: 'drain' | 'undrain', deps: ClusterDeps) =>
  defineEndpoint({
    method: 'POST',
    path: `/cluster/${action}`,
    summary:
      action === 'drain'
        ? 'A node takes nothing more from the queue, and others have its duties'
        : 'A node that was drained takes mail from the queue again',
    group,
    access: 'admin',
    problems: ['not-found', 'conflict', 'unavailable'],
    body: { kind: 'fields', schema: Body },
    answer: Changed,
    cache: 'no-store',
    async handle({ body: { node } }) {
      const isDrain = action === 'drain';
      if (!(await setDraining(askFor(shared(deps).database), node, isDrain)))
        throw problem('not-found', `No node that lives calls itself ${node}.`);
      return respond({
        status: 200,
        location: '/cluster',
        model: { node, state: isDrain ? ('draining' as const) : ('up' as const) },
        notice: isDrain
          ? `${node} takes nothing more from the queue. It may be stopped when it has no leases.`
          : `${node} takes mail from the queue again.`,
        audit: { action: `${action} node`, selector: { node } },
      });
    },
  });

const forgetEndpoint = (deps: ClusterDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/cluster/forget',
    summary: 'A dead node is not listed any more',
    group,
    access: 'admin',
    problems: ['not-found', 'conflict', 'unavailable'],
    body: { kind: 'fields', schema: Body },
    answer: Changed,
    cache: 'no-store',
    async handle({ body: { node } }) {
      const done = await forgetNode(askFor(shared(deps).database), node);
      if (done === 'alive') throw problem('conflict', `${node} is not dead. Stop it first.`);
      if (done === 'unknown') throw problem('not-found', `No node calls itself ${node}.`);
      return respond({
        status: 200,
        location: '/cluster',
        model: { node, state: 'forgotten' as const },
        notice: `${node} is not listed until it joins again.`,
        audit: { action: 'forget node', selector: { node } },
      });
    },
  });

const username = z.string().min(3).max(320).describe('Name of the user, `local@domain`');

const mailboxEndpoint = (deps: ClusterDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/cluster/mailboxes/{username}',
    summary: 'Which node has a mailbox',
    group,
    access: 'read',
    problems: ['not-found', 'conflict', 'unavailable'],
    params: z.strictObject({ username }),
    answer: MailboxState,
    cache: 'no-store',
    handle: ({ params }) => mailboxState(askFor(shared(deps).database), params.username),
  });

const moveEndpoint = (deps: ClusterDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/cluster/move-mailbox',
    summary: 'A mailbox moves to another node; mail for it is queued meanwhile',
    group,
    access: 'admin',
    problems: ['not-found', 'conflict', 'unavailable'],
    body: { kind: 'fields', schema: z.strictObject({ username, node: Body.shape.node }) },
    answer: MailboxState,
    cache: 'no-store',
    async handle({ body }) {
      const node = shared(deps);
      const model = await requestMove(askFor(node.database), body.username, body.node);
      node.ringAll(ownersTopic, []);
      return respond({
        status: 200,
        location: '/cluster',
        model,
        notice: `${body.username} moves to ${body.node}.`,
        audit: { action: 'move mailbox', selector: body },
      });
    },
  });

function shared({ node }: ClusterDeps): ClusterNode {
  if (node === undefined) throw problem('conflict', 'This server is alone: plugins.cluster.database is not set.');
  return node;
}
