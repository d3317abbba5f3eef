import { targets } from '../../core/contracts/targets.js';
import { configuration } from '../../core/contracts/server.js';
import { directory } from '../../core/contracts/directory.js';
import { mailSearch } from '../../core/contracts/mail-search.js';
import { allMailboxesHere, mailboxOwners } from '../../core/contracts/mailbox-owners.js';
import { type MailboxName, mailboxes } from '../../core/contracts/mailboxes.js';
import { messageViewer } from '../../core/contracts/message-viewer.js';
import { submission } from '../../core/contracts/submission.js';
import { nodeIdOf } from '../../core/host/data-folder.js';
import { WriteHealth } from '../../core/spool/health.js';
import { definePlugin } from '../../core/plugin.js';
import { maildirTarget } from './delivery/delivery.js';
import { mailFolderCheck } from './doctor-check.js';
import { openDraftService } from './drafts/draft-sending.js';
import { emptyingEndpoints } from './http/emptying-endpoints.js';
import { folderChangeEndpoints } from './http/folder-changes.js';
import { mailboxCommand } from './mailbox-command.js';
import { MailboxNames, MailboxProvision } from './maildir/mailboxes.js';
import { watchMailFolder, watchStoreFolders } from './unknown-files.js';
import { UniqueNames } from './maildir/maildir-name.js';
import { MaildirTree, openRoot } from './maildir/maildir.js';
import { messageChangeEndpoints } from './http/message-changes.js';
import { StoreOptions } from './options.js';
import { quotaHook } from './delivery/mailbox-quota.js';
import { LooseMessageViewer } from './http/message-viewer.js';
import { folderHref } from './http/view-model.js';
import { storeEndpoints } from './http/reading-endpoints.js';
import { draftEndpoints } from './http/drafts.js';
import { selectionEndpoint } from './http/selection.js';
import { mailboxService } from './messages/mailbox-service.js';
import { atItsOwner, mailboxPlace, usersHere } from './owned-mailboxes.js';
import { openStoreEditor } from './messages/message-editor.js';
import { storeMetrics } from './delivery/store-metrics.js';
import { StoreReader } from './messages/store-reader.js';
import { StoreSearch } from './search/store-search.js';

/** Interval of write tests while the store is degraded. */
const probeSeconds = 10;
/** Interval at which the mailboxes on disk are counted. */
const countSeconds = 60;

/** Stores mail in Maildir++ folders: the delivery target `mailbox`, and the mailboxes for other plugins. */
export const store = definePlugin({
  name: 'store',
  options: StoreOptions,
  needs: { configuration, directory, submission },
  uses: { mailboxOwners },
  provides: { mailboxes, mailSearch, messageViewer },
  checks: [mailFolderCheck],
  commands: [mailboxCommand],
  async setup(context, { options, configuration, directory, submission, mailboxOwners: owners = allMailboxesHere }) {
    const { http, smtp, metrics, health, clock, log } = context;
    const maildirs = new MaildirTree(await openRoot(configuration.data, options.root));
    const writable = new WriteHealth(maildirs.root, { clock });
    health.check('store', () => writable.report());
    context.every(probeSeconds, () => writable.probe());
    const node = await nodeIdOf(configuration.data);
    await watchMailFolder(maildirs.root, node, context);
    const reader = await StoreReader.open({
      root: maildirs.root,
      clock,
      cache: { ...options.cache, files: await context.folder('cache/folders') },
    });
    context.onClose(() => reader.close());
    const unique = new UniqueNames({ host: configuration.hostname, clock });
    const provision = new MailboxProvision(maildirs, usersHere(directory, owners), log);
    const names = new MailboxNames(directory, provision);
    const limitOf = (mailbox: MailboxName) => names.quota(mailbox);
    const editor = await openStoreEditor({ reader, root: maildirs.root, node, names: unique, limitOf, clock, log });
    // After the start, since there may be very many files.
    const settled = editor.mailboxes.resume();
    await owners.open(mailboxPlace({ maildirs, reader, editor, settled }));
    smtp.on('rcptTo', { order: 'last' }, quotaHook(usersHere(directory, owners), editor.quotas));
    const target = maildirTarget({
      maildirs,
      names: unique,
      quotas: editor.quotas,
      health: writable,
      metrics: storeMetrics(metrics),
      clock,
      log,
    });
    smtp.deliverTo(targets.mailbox, owners.divided(target));
    await provision.ensureAll();
    let mailboxCount = await reader.countMailboxes();
    context.every(countSeconds, async () => {
      mailboxCount = await reader.countMailboxes();
    });
    health.check('mailboxes', () => ({ status: 'up', figures: mailboxCount }));
    const site = { reader, editor, names, clock };
    const draftServices = await openDraftService({
      reader,
      names: unique,
      provide: (mailbox, folder) => editor.folders.provide(mailbox, folder),
      quotas: editor.quotas,
      submission,
      folder: await context.folder('drafts'),
      messageBytes: () => configuration.messageBytes ?? Infinity,
      clock,
      log,
    });
    watchStoreFolders(configuration.data, context);
    const endpoints = [
      ...storeEndpoints({ reader, names, domains: () => configuration.domains }),
      ...folderChangeEndpoints(site),
      ...messageChangeEndpoints(site),
      ...emptyingEndpoints(site),
      selectionEndpoint(site),
      ...draftEndpoints({ ...draftServices, reader, names }),
    ];
    http.mount(endpoints.map((endpoint) => atItsOwner(endpoint, directory, owners)));
    http.navigate({ title: 'Mailboxes', href: '/store', order: 20, role: 'operate', group: 'Mail' });
    return {
      mailboxes: mailboxService({ maildirs, reader, editor, owners }),
      mailSearch: new StoreSearch(reader, folderHref, owners.node),
      messageViewer: new LooseMessageViewer(reader.parser),
    };
  },
});
