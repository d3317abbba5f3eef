import { join } from 'node:path';
import { type DovecotListContext, readDovecotList, replaceDovecotList } from './dovecot-list.js';
import { decodeModifiedUtf7, encodeModifiedUtf7 } from './modified-utf7.js';

/** Folder `from` and all below it are called `to` now; null: they are gone. */
export interface SubscriptionChange {
  readonly from: string;
  readonly to: string | null;
}

/**
 * Changes names in the mailbox's `subscriptions`, which mail clients wrote through an IMAP server: in the two formats that
 * Dovecot knows. Without such a file there is nothing to do.
 */
export async function changeSubscriptions(
  mailbox: string,
  change: SubscriptionChange,
  context: DovecotListContext,
): Promise<void> {
  const path = join(mailbox, 'subscriptions');
  if ((await readDovecotList(path)) === undefined) return;
  await replaceDovecotList(path, (list) => changed(list, change), context);
}

/** First line of the newer format, whose names have a tab between their levels; the older one has a dot. */
const secondFormat = /^V\t2\n/;

function changed(list: string, change: SubscriptionChange): string {
  const separator = secondFormat.test(list) ? '\t' : '.';
  return list
    .split('\n')
    .flatMap((line) => changedLine(line, separator, change))
    .join('\n');
}

function changedLine(line: string, separator: string, { from, to }: SubscriptionChange): readonly string[] {
  if (line === '' || /^V\t\d/.test(line)) return [line];
  const raw = /[\x80-\xff]/.test(line);
  const written = separator === '.' ? line : line.replaceAll(separator, '.');
  const name = nameOf(written, raw);
  if (name !== from && !name.startsWith(`${from}.`)) return [line];
  if (to === null) return [];
  const renamed = to + name.slice(from.length);
  const encoded = raw ? Buffer.from(renamed).toString('latin1') : encodeModifiedUtf7(renamed);
  return [encoded.replaceAll('.', separator)];
}

function nameOf(written: string, raw: boolean): string {
  const text = raw ? Buffer.from(written, 'latin1').toString('utf8') : (decodeModifiedUtf7(written) ?? written);
  return text.normalize('NFC');
}
