import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../../../core/clock.js';
import type { DeliveryTarget, RecipientOutcome } from '../../../core/pipeline/delivery-target.js';
import { openSpool, type FileSpool } from '../../../core/spool/file-spool.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import { WriteHealth } from '../../../core/spool/health.js';
import type { Address, Domain, LocalPart } from '../../../core/mime/address.js';
import type { Recipient, Transaction } from '../../../core/pipeline/transaction.js';
import { maildirTarget } from '../../../plugins/store/delivery/delivery.js';
import type { MailboxQuotas } from '../../../plugins/store/delivery/mailbox-quota.js';
import { UniqueNames } from '../../../plugins/store/maildir/maildir-name.js';
import { MaildirTree } from '../../../plugins/store/maildir/maildir.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { FaultyFiles } from '../../core/spool/faulty-files.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';

export const body = Buffer.from('Subject: hello\r\n\r\nA line.\r\n');
export const prologue = { returnPath: Buffer.from('Return-Path: <>\r\n'), trace: Buffer.from('Received: now\r\n') };
export const whole = Buffer.concat([prologue.returnPath, prologue.trace, body]);

/** A store over a temporary folder, with a disk that can fail. */
export interface DeliveryFixture {
  readonly root: string;
  readonly mail: string;
  readonly files: FaultyFiles;
  readonly spool: FileSpool;
  readonly maildirs: MaildirTree;
  readonly target: DeliveryTarget;
  readonly health: WriteHealth;
  readonly sentences: readonly string[];
  readonly counted: { delivered: number; bytes: number; failed: number };
}

export interface StoreOptions {
  /** Folder of the mailboxes; a new one if absent. */
  readonly root?: string;
  readonly quotas?: MailboxQuotas;
}

export async function openStore(
  test: Parameters<typeof temporaryFolder>[0],
  { root: known, quotas }: StoreOptions = {},
): Promise<DeliveryFixture> {
  const root = await temporaryFolder(test);
  const mail = known ?? join(root, 'mail');
  await mkdir(mail, { recursive: true });
  const files = new FaultyFiles();
  const { log, sentences } = rememberingLog();
  const spool = await openSpool(join(root, 'spool'), { log, files, reserveBytes: 0 });
  const maildirs = new MaildirTree(mail, files);
  const health = new WriteHealth(mail, { files });
  const counted = { delivered: 0, bytes: 0, failed: 0 };
  const target = maildirTarget({
    maildirs,
    names: new UniqueNames({ host: 'mail.example.org', clock: systemClock }),
    health,
    metrics: {
      delivered: (mailboxes, size) => {
        counted.delivered += mailboxes;
        counted.bytes += mailboxes * size;
      },
      failed: (mailboxes) => {
        counted.failed += mailboxes;
      },
    },
    clock: systemClock,
    log,
    ...(quotas !== undefined && { quotas }),
  });
  return { root, mail, files, spool, maildirs, target, health, sentences, counted };
}

export function addressOf(text: string): Address {
  const at = text.lastIndexOf('@');
  const local = text.slice(0, at) as LocalPart;
  return { local, domain: text.slice(at + 1) as Domain, address: text, international: false };
}

/** A recipient routed to the mailbox of `user`, by default the one of its own address. */
export function recipient(address: string, user = address): Recipient {
  return { address: addressOf(address), hop: { target: 'mailbox', destination: user }, discarded: false };
}

/** What a target looks at in a transaction: nothing but its recipients. */
export function transactionOf(recipients: readonly Recipient[]): Transaction {
  return {
    id: 'transaction',
    session: {
      id: 'session',
      listener: { name: 'mx', mode: 'mx' },
      remote: { address: '127.0.0.1', port: 1 },
      exempt: true,
      hello: undefined,
      tls: undefined,
      user: undefined,
      since: '2026-11-21T00:00:00Z',
      notes: new Map(),
    },
    reversePath: null,
    declaredSize: undefined,
    body: '7BIT',
    smtputf8: false,
    recipients,
    notes: new Map(),
  };
}

export async function spooled(spool: FileSpool, content = body): Promise<SpooledMessage> {
  const writer = await spool.create(prologue.returnPath, prologue.trace);
  await writer.write(content);
  return writer.finish();
}

/** As the pipeline does it. */
export async function deliver(
  { target, spool }: DeliveryFixture,
  recipients: readonly Recipient[],
  content = body,
  transaction = transactionOf(recipients),
): Promise<readonly RecipientOutcome[]> {
  const message = await spooled(spool, content);
  try {
    const delivery = await target.start(transaction, recipients);
    try {
      await delivery.body(message);
      return await delivery.commit();
    } catch (error) {
      await delivery.abort();
      throw error;
    }
  } finally {
    await message.release();
  }
}

export function inboxOf({ mail }: Pick<DeliveryFixture, 'mail'>, user: string): string {
  const at = user.lastIndexOf('@');
  return join(mail, user.slice(at + 1), user.slice(0, at), 'new');
}

/** The messages in `new` of that user, by name. */
export async function inbox(
  fixture: Pick<DeliveryFixture, 'mail'>,
  user: string,
): Promise<ReadonlyMap<string, Buffer>> {
  const folder = inboxOf(fixture, user);
  const names = await readdir(folder);
  return new Map(await Promise.all(names.map(async (name) => [name, await readFile(join(folder, name))] as const)));
}
