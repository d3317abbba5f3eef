import { type EndpointRequest, respond, type Response } from '../../core/http/endpoint.js';
import type { Clock } from '../../core/clock.js';
import { problem } from '../../core/problem.js';
import { parseFolderName } from './folder-name.js';
import type { MailboxNames } from './mailbox-names.js';
import type { StoreEditor } from './store-editor.js';
import type { StoreReader } from './store-reader.js';

/** What the endpoints that change mailboxes stand on. */
export interface StoreSite {
  readonly reader: StoreReader;
  readonly editor: StoreEditor;
  readonly names: MailboxNames;
  readonly clock: Clock;
}

export const mailboxPath = '/store/{domain}/{user}';
export const folderPath = `${mailboxPath}/folders/{folder}`;
export const group = 'Mailboxes';

interface Question {
  readonly question: string;
  /** What the form said, to be said again. */
  readonly fields: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly label: string;
  readonly back: string;
}

/** A page that says what is about to happen, and asks. For forms only; scripts have `dryRun`. */
export function ask(request: EndpointRequest, { question, fields, label, back }: Question): Response<never> {
  const sent = Object.entries(fields).flatMap(([name, value]) =>
    [value ?? []].flat().map((text) => ({ name, value: text })),
  );
  const model = { question, fields: sent, label, back, action: request.listPath };
  // The endpoint's own model is what scripts get, and those are never asked.
  return respond({ view: 'confirm.njk', model }) as unknown as Response<never>;
}

/** A count with its noun: `1 message`, `2 messages`. */
export function counted(count: number, noun: string): string {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}

/** A folder as a path names it. @throws Problem `bad-request` */
export const folderOf = ({ folder }: { readonly folder: string }) => parseFolderName(folder);

/** @throws Problem `invalid` when the body names a folder that is not there */
export const missingParent = (name: string) =>
  problem('invalid', {
    detail: `There is no folder ${name} to put it into.`,
    errors: [{ pointer: '/parent', message: 'must be a folder of this mailbox' }],
  });
