import { z } from 'zod';
import { keptSessions } from '../../core/contracts/browser-sessions.js';
import { attemptLimits, cluster, documents, duties, siteShares } from '../../core/contracts/cluster.js';
import type { HealthReport } from '../../core/contracts/health.js';
import { configurationSets } from '../../core/contracts/configuration-source.js';
import { localDelivery } from '../../core/contracts/local-delivery.js';
import { forwardedRequests, otherNodes } from '../../core/contracts/other-nodes.js';
import { mailboxOwners } from '../../core/contracts/mailbox-owners.js';
import { auditReader, keptAnswers } from '../../core/contracts/http-records.js';
import { configuration, type Configuration, healthOverview, lifecycle } from '../../core/contracts/server.js';
import { userRecords } from '../../core/contracts/user-records.js';
import { nodeIdOf } from '../../core/host/data-folder.js';
import { version } from '../../core/host/installation.js';
import { definePlugin, type Plugin } from '../../core/plugin.js';
import { startError } from '../../core/problem.js';
import { clusterCommand } from './cluster-command.js';
import { exportMetrics } from './cluster-metrics.js';
import { clusterCheck } from './doctor-check.js';
import { clusterEndpoints } from './http/routes.js';
import type { ClusterNode } from './node.js';
import { ClusterOptions, type ClusterSettings } from './options.js';
import type { LoadMove } from './queue-transfer.js';
import { clockPlaySeconds, type MailboxReport } from './database/server-state.js';

const name = 'cluster';
/** Health speaks of commits that the database has forgotten for so long. Milliseconds. */
const alarmMs = 3_600_000;
const link = { title: 'Cluster', href: '/cluster', order: 95, role: 'read', group: 'Admin' } as const;

/** Several servers that are one service: they share a PostgreSQL. */
const nodeOfCluster = definePlugin({
  name,
  options: ClusterOptions,
  needs: { configuration, attemptLimits, healthOverview, localDelivery, forwardedRequests, lifecycle },
  provides: {
    cluster,
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
  checks: [clusterCheck],
  async setup(context, { options, ...services }) {
    // Who has no cluster does not wait until the client of the database is loaded.
    const { ClusterNode, provideServices } = await import('./node-services.js');
    const { clock, log, health, http, onClose } = context;
    const { data, hostname } = services.configuration;
    const { sessionSeconds } = options;
    const mailboxes = mailboxReport(options, services.configuration);
    const node = new ClusterNode({
      settings: options,
      node: options.node ?? hostname,
      instance: await nodeIdOf(data),
      clock,
      log,
      report: () => ({ version, mailboxes }),
    });
    onClose(() => node.leave());
    const complaint = await node.complaint();
    if (complaint !== undefined) throw startError(complaint);
    await node.join();
    health.check('cluster', () => healthOf(node, services.configuration, clock.now()));
    http.navigate(link);
    const { provided, sets } = await provideServices(context, { node, settings: options, ...services });
    http.mount(
      clusterEndpoints({
        node,
        sessionSeconds,
        sets: { sets, configuration: services.configuration, changed: () => provided.configurationSets.changed() },
      }),
    );
    exportMetrics(context, node, sessionSeconds);
    return { cluster: node, ...provided };
  },
});

/** A server without options for a cluster. */
const alone = definePlugin({
  name,
  options: z.strictObject({}),
  checks: [clusterCheck],
  reload: 'restart',
  setup({ http }) {
    http.mount(clusterEndpoints({ node: undefined, sessionSeconds: 0 }));
    return {};
  },
});

/** @param loadMove gives what knows the queue in files and the one in the database */
export function clusterPlugin(loadMove: LoadMove): Plugin {
  const commands = [clusterCommand(loadMove)];
  return { ...nodeOfCluster, commands, unconfigured: { ...alone, commands } };
}

/** What the others may know of the mailboxes of this node. */
function mailboxReport({ mailboxes: mode, peers }: ClusterSettings, configuration: Configuration): MailboxReport {
  const { hostname } = configuration;
  const takesMail = hasDomains(configuration);
  if (peers === undefined) return { mode, takesMail };
  const { address = hostname, port } = peers;
  const pages = configuration.effective().flatMap(({ key, value }) => (key.startsWith('http.publicUrls') ? value : []));
  return {
    mode,
    takesMail,
    address: /:\d+$/.test(address) ? address : `${address}:${port}`,
    pages: pages.map(String),
  };
}

/** Without domains of its own a server has `localhost`, for its notices. */
const hasDomains = ({ domains }: Configuration): boolean => domains.some((domain) => domain !== 'localhost');

/** Mail that needs no queue: for mailboxes, or handed on while its client waits. */
const takesWithoutQueue = (configuration: Configuration): boolean =>
  hasDomains(configuration) ||
  configuration.effective().some(({ key }) => /^plugins\.(?:lmtp\.routes|proxy\.rules)\b./.test(key));

/** Why the queue can be used neither for new mail nor for what is in it. */
function hindrance({ fault, outdated, session }: ClusterNode): string | undefined {
  if (fault !== undefined) return `The database does not answer: ${fault}.`;
  if (outdated !== undefined) return `${outdated} Mail for others is neither taken nor sent.`;
  return session === undefined ? 'This node has no session; it joins again.' : undefined;
}

function healthOf(node: ClusterNode, configuration: Configuration, now: number): HealthReport {
  const page = '/cluster';
  const why = hindrance(node);
  if (why !== undefined) {
    const mayPass = node.outdated === undefined && node.silentMs <= node.commitTimeoutMs;
    if (mayPass || takesWithoutQueue(configuration)) return { status: 'degraded', why, page };
    return { status: 'down', why: `${why} This server takes no mail until it does.`, page };
  }
  const { forgottenAt = -Infinity } = node;
  if (now - forgottenAt < alarmMs) {
    const since = new Date(forgottenAt).toISOString();
    const lost = 'mail that it had taken may be lost, or sent again';
    return { status: 'degraded', why: `The database has forgotten commits, seen at ${since}: ${lost}.`, page };
  }
  const apart = Math.round(Math.abs(node.clockAheadMs ?? 0) / 1000);
  if (apart <= clockPlaySeconds) return { status: 'up' };
  return { status: 'degraded', why: `The clocks of this machine and of the database differ by ${apart} s.`, page };
}
