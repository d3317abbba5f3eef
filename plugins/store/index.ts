import { configuration } from '../../core/contracts/server.js';
import { directory } from '../../core/contracts/directory.js';
import { mailboxes } from '../../core/contracts/mailboxes.js';
import { WriteHealth } from '../../core/disk/write-health.js';
import { definePlugin } from '../../core/plugin.js';
import { mailboxTarget, maildirTarget } from './delivery.js';
import { maildirMailboxes } from './maildir-mailboxes.js';
import { UniqueNames } from './maildir-name.js';
import { MaildirTree } from './maildir.js';
import { makeMissingMailboxes } from './missing-mailboxes.js';
import { StoreOptions } from './options.js';
import { openRoot } from './root.js';
import { storeEndpoints } from './routes.js';
import { storeMetrics } from './store-metrics.js';
import { StoreReader } from './store-reader.js';

/** How often a degraded store tries to write again. */
const probeSeconds = 10;

/** Keeps mail in Maildir++ folders: the delivery target `mailbox`, and the mailboxes for other plugins. */
export const store = definePlugin({
  name: 'store',
  options: StoreOptions,
  needs: { configuration, directory },
  provides: { mailboxes },
  async setup(context, { options, configuration, directory }) {
    const { http, smtp, metrics, health, clock, log } = context;
    const maildirs = new MaildirTree(await openRoot(configuration.data, options.root));
    const writable = new WriteHealth(maildirs.root, { clock });
    health.check('store', () => writable.report());
    context.every(probeSeconds, () => writable.probe());
    smtp.deliverTo(
      mailboxTarget,
      maildirTarget({
        maildirs,
        names: new UniqueNames({ host: configuration.hostname, clock }),
        health: writable,
        metrics: storeMetrics(metrics),
        clock,
        log,
      }),
    );
    await makeMissingMailboxes(maildirs, directory, log);
    const reader = await StoreReader.open({ root: maildirs.root, clock });
    context.onClose(() => reader.close());
    http.mount(storeEndpoints({ reader, directory, domains: configuration.domains }));
    http.navigate({ title: 'Mailboxes', href: '/store', order: 20, role: 'operate' });
    return { mailboxes: maildirMailboxes(maildirs) };
  },
});
