import { pino } from 'pino';
import { join } from 'node:path';
import { systemClock } from '../../../core/clock.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { openAccounts } from '../../../core/http/accounts.js';
import { HttpOptions } from '../../../core/http/options.js';
import { createHttpShell } from '../../../core/http/shell/shell.js';
import { Metrics } from '../../../core/metrics/metrics.js';
import { MailboxNames } from '../../../plugins/store/maildir/mailboxes.js';
import { emptyingEndpoints } from '../../../plugins/store/http/emptying-endpoints.js';
import { folderChangeEndpoints } from '../../../plugins/store/http/folder-changes.js';
import { messageChangeEndpoints } from '../../../plugins/store/http/message-changes.js';
import { selectionEndpoint } from '../../../plugins/store/http/selection.js';
import { storeEndpoints } from '../../../plugins/store/http/reading-endpoints.js';
import { atEnd, type Ending } from '../../support/ending.js';
import { HttpClient } from '../../support/http-client.js';
import { projectRoot } from '../../support/project.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { EditingFixture } from './editing-fixture.js';
import type { ReadingFixture } from './reading-fixture.js';

export interface StoreDeps {
  readonly base: string;
  readonly operator: HttpClient;
  /** May see pages of the service, but no mail. */
  readonly reader: HttpClient;
}

export interface SiteOptions {
  readonly signIn?: boolean;
  /** Bytes of every mailbox. */
  readonly quota?: number;
  /** Under what changes mailboxes. */
  readonly files?: FileLayer;
}

const accounts = [
  { username: 'operator', password: 'operator-secret', role: 'operate' },
  { username: 'reader', password: 'reader-secret', role: 'read' },
];

/**
 * The endpoints of the store behind the real shell, over real HTTP. A missing value in a view is an error. Nobody has to
 * sign in unless `signIn`: to check a password takes a quarter of a second.
 */
export async function openSite(
  test: Ending,
  fixture: ReadingFixture,
  { signIn = false, ...editing }: SiteOptions = {},
): Promise<StoreDeps> {
  const data = await temporaryFolder(test);
  const settings = HttpOptions.parse({
    port: 0,
    accounts,
    access: signIn ? [] : [{ match: '/*', public: true }],
  });
  const opened = await openAccounts({
    configured: settings.accounts,
    file: join(data, 'accounts.json'),
    adminPassword: undefined,
    clock: systemClock,
  });
  const shell = createHttpShell({
    settings,
    accounts: opened.accounts,
    log: pino({ level: 'silent' }),
    clock: systemClock,
    metrics: new Metrics({ process: false }).scope('http'),
    viewsRoot: join(projectRoot, 'views'),
    publicRoot: join(projectRoot, 'public'),
    dataRoot: data,
    version: '0.0.0',
    hostname: 'mail.example.org',
    uploadLimit: 1000,
    strictViews: true,
  });
  const names = new MailboxNames({ find: () => Promise.resolve(undefined) });
  const { reader } = fixture;
  const { editor } = await EditingFixture.over(fixture, editing);
  const site = { reader, editor, names, clock: systemClock };
  shell.mount('store', [
    ...storeEndpoints({ reader, names, domains: () => ['localhost'] }),
    ...folderChangeEndpoints(site),
    ...messageChangeEndpoints(site),
    ...emptyingEndpoints(site),
    selectionEndpoint(site),
  ]);
  await shell.listen();
  atEnd(test, () => shell.close(0));
  const base = `http://127.0.0.1:${shell.address().port}`;
  return {
    base,
    operator: new HttpClient(base, signIn ? { username: 'operator', password: 'operator-secret' } : undefined),
    reader: new HttpClient(base, { username: 'reader', password: 'reader-secret' }),
  };
}
