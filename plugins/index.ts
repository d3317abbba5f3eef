import type { Plugin } from '../core/plugin.js';
import { accounts } from './accounts/index.js';
import { acme } from './acme/index.js';
import { clientQueue } from './client-queue/index.js';
import { clusterPlugin } from './cluster/index.js';
import { config } from './config/index.js';
import { lmtp } from './upstream/lmtp/index.js';
import { mtaSts } from './mta-sts/index.js';
import { monitoring } from './monitoring/index.js';
import { pipeline } from './pipeline/index.js';
import { proxy } from './upstream/proxy/index.js';
import { store } from './store/index.js';
import { tlsReports } from './tls-reports/index.js';
import { trace } from './trace/index.js';
import { users } from './users/index.js';

/** The plugins that come with the server. */
export const builtIns: readonly Plugin[] = [
  config,
  clusterPlugin(async () => (await import('./client-queue/postgres/open-postgres-queue.js')).moveQueue),
  accounts,
  users,
  store,
  clientQueue,
  proxy,
  lmtp,
  pipeline,
  trace,
  acme,
  mtaSts,
  tlsReports,
  monitoring,
];
