import { setTimeout as wait } from 'node:timers/promises';
import { z } from 'zod';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { type AnyEndpoint, defineEndpoint, type EndpointRequest, respond } from '../../../core/http/endpoint.js';
import { ask, namesTag } from '../../../core/http/response.js';
import { pluralize } from '../../../core/text/format.js';
import { problem } from '../../../core/problem.js';
import type { Condition } from '../folders/folder-editor.js';
import { folderBelow, type FolderName, levelOf, parentOf, parseFolderName } from '../folders/folder-name.js';
import { folderHref, mailboxHref } from './view-model.js';
import { FolderField } from './selection.js';
import * as answer from './store-answer.js';
import * as schema from './store-query.js';
import { folderOf, folderPath, mailboxesGroup, mailboxPath, type StoreDeps } from './store-query.js';

const Level = z.string().max(250).describe('One level, without a dot.');
const Parent = FolderField.nullable().optional().describe('Folder above; null, INBOX or absent: the first level.');
const destinationField = '/destinationParent';

const access = 'operate';

/** Create, rename, copy, move and remove folders. */
export function folderChangeEndpoints(deps: StoreDeps): readonly AnyEndpoint[] {
  return [creation(deps), renaming(deps), copying(deps), moving(deps), removal(deps)];
}

function creation(deps: StoreDeps): AnyEndpoint {
  const { editor, names } = deps;
  return defineEndpoint({
    method: 'POST',
    path: `${mailboxPath}/folders`,
    success: [201],
    summary: 'Create a folder',
    group: mailboxesGroup,
    access,
    params: schema.MailboxParams,
    body: { kind: 'fields', schema: z.strictObject({ name: Level, parent: Parent }) },
    answer: answer.ListedFolder,
    async handle({ params, body }) {
      const mailbox = await names.parse(params);
      const parent = body.parent ?? null;
      const name = folderBelow(parent, body.name);
      await editor.folders.create(mailbox, name, isThere(deps, mailbox, parent, '/parent'));
      return described(deps, mailbox, name, { status: 201, action: 'folder.create', notice: `${name.name} was made.` });
    },
  });
}

function renaming(deps: StoreDeps): AnyEndpoint {
  const { editor, names } = deps;
  return defineEndpoint({
    method: 'PATCH',
    path: folderPath,
    conditions: ['If-Match'],
    summary: 'Rename a folder with its subfolders',
    group: mailboxesGroup,
    access,
    params: schema.FolderParams,
    body: { kind: 'fields', schema: z.strictObject({ name: Level }) },
    answer: answer.ListedFolder,
    async handle({ params, body, request }) {
      const mailbox = await names.parse(params);
      const folder = folderOf(params);
      const above = parentOf(folder);
      const name = folderBelow(above === null ? null : parseFolderName(above), body.name);
      await editor.folders.rename(mailbox, folder, name, asRead(deps, mailbox, folder, request));
      return described(deps, mailbox, name, {
        action: 'folder.rename',
        notice: `${folder.name} is called ${name.name} now.`,
      });
    },
  });
}

function copying(deps: StoreDeps): AnyEndpoint {
  const { editor, names } = deps;
  const fields = z.strictObject({ destinationParent: Parent, newName: Level.optional() });
  return defineEndpoint({
    method: 'POST',
    path: `${folderPath}/copy`,
    success: [201],
    summary: 'Copy a folder with its messages and subfolders',
    group: mailboxesGroup,
    access,
    params: schema.FolderParams,
    body: { kind: 'fields', schema: fields },
    answer: answer.ListedFolder,
    async handle({ params, body }) {
      const mailbox = await names.parse(params);
      const folder = folderOf(params);
      const { destinationParent = parentFolder(folder), newName } = body;
      const renamed = newName !== undefined && newName !== '';
      const pointer = renamed ? '/newName' : blamed(body);
      const name = folderBelow(destinationParent, renamed ? newName : levelOf(folder), pointer);
      await editor.folders.copy(mailbox, folder, name, isThere(deps, mailbox, destinationParent, destinationField));
      return described(deps, mailbox, name, {
        status: 201,
        action: 'folder.copy',
        notice: `${folder.name} was copied to ${name.name}.`,
      });
    },
  });
}

function moving(deps: StoreDeps): AnyEndpoint {
  const { editor, names } = deps;
  return defineEndpoint({
    method: 'POST',
    path: `${folderPath}/move`,
    conditions: ['If-Match'],
    summary: 'Move a folder below another one, or to the top level',
    group: mailboxesGroup,
    access,
    params: schema.FolderParams,
    body: { kind: 'fields', schema: z.strictObject({ destinationParent: Parent }) },
    answer: answer.ListedFolder,
    async handle({ params, body, request }) {
      const mailbox = await names.parse(params);
      const folder = folderOf(params);
      const parent = body.destinationParent ?? null;
      if (parent?.name === folder.name) throw problem('invalid', 'A folder cannot be moved into itself.');
      const name = folderBelow(parent, levelOf(folder), blamed(body));
      await editor.folders.rename(mailbox, folder, name, async () => {
        await isThere(deps, mailbox, parent, destinationField)();
        await asRead(deps, mailbox, folder, request)?.();
      });
      return described(deps, mailbox, name, { action: 'folder.move', notice: `${folder.name} is ${name.name} now.` });
    },
  });
}

function removal(deps: StoreDeps): AnyEndpoint {
  const { editor, names, reader } = deps;
  const query = z.strictObject({
    recursive: z.boolean().optional().describe('With its messages and the folders below.'),
  });
  return defineEndpoint({
    method: 'DELETE',
    path: folderPath,
    conditions: ['If-Match'],
    summary: 'Remove a folder permanently; recursive=true if it is not empty',
    group: mailboxesGroup,
    access,
    params: schema.FolderParams,
    query,
    answer: z.object({ name: z.string(), folders: z.int(), messages: z.int(), size: z.int() }),
    async handle({ params, query: { recursive = false }, request }) {
      const mailbox = await names.parse(params);
      const folder = folderOf(params);
      const home = mailboxHref(names.describe(mailbox));
      if (!request.confirmed) {
        const going = (await reader.folders(mailbox)).filter(
          ({ name }) => name === folder.name || name.startsWith(`${folder.name}.`),
        );
        const messages = going.reduce((sum, { total }) => sum + total, 0);
        const below = going.length > 1 ? ` and ${pluralize(going.length - 1, 'folder')} below it` : '';
        const question = `Delete the folder ${folder.name}${below}, with ${pluralize(messages, 'message')}, permanently?`;
        return ask(request, { question, fields: { _method: 'DELETE' }, label: 'Delete it', back: home });
      }
      const condition = asRead(deps, mailbox, folder, request);
      const { count, size, folders } = await editor.folders.remove(mailbox, folder, recursive, condition);
      return respond({
        model: { name: folder.name, folders, messages: count, size },
        location: home,
        notice: `${folder.name} was deleted, with ${pluralize(count, 'message')}.`,
        audit: { action: 'folder.delete', selector: { folder: folder.name }, counts: { folders, messages: count } },
      });
    },
  });
}

interface Done {
  /** 200 if absent. */
  readonly status?: number;
  readonly action: string;
  readonly notice: string;
}

async function described({ reader, names }: StoreDeps, mailbox: MailboxName, folder: FolderName, done: Done) {
  const { action, status = 200, notice } = done;
  const model = (await reader.folders(mailbox)).find(({ name }) => name === folder.name);
  const location = folderHref(names.describe(mailbox), folder.name);
  return respond({ status, notice, model, location, audit: { action, selector: { folder: folder.name } } });
}

/** Attributes errors of the name to the right field. */
const blamed = ({ destinationParent }: { readonly destinationParent?: unknown }): string =>
  destinationParent === undefined ? 'folder' : destinationField;

function parentFolder(folder: FolderName): FolderName | null {
  const above = parentOf(folder);
  return above === null ? null : parseFolderName(above);
}

/** Requires that the folder exists: `invalid` otherwise. */
function isThere({ reader }: StoreDeps, mailbox: MailboxName, parent: FolderName | null, pointer: string): Condition {
  return async () => {
    if (parent === null || parent.directory === '') return;
    const all = await reader.mailboxFolders.list(mailbox);
    if (!all.some(({ name: { name } }) => name === parent.name || name.startsWith(`${parent.name}.`))) {
      throw problem('invalid', {
        detail: `There is no folder ${parent.name} to put it into.`,
        errors: [{ pointer, message: 'must be a folder of this mailbox' }],
      });
    }
  };
}

const tries = 4;
const waitMs = 60;

/**
 * Requires that the folder is unchanged since the caller read it, if it sent `If-Match`: `precondition-failed`
 * otherwise.
 */
function asRead(
  deps: StoreDeps,
  mailbox: MailboxName,
  folder: FolderName,
  { ifMatch }: EndpointRequest,
): Condition | undefined {
  if (ifMatch === undefined) return undefined;
  return async () => {
    const version = await presentVersion(deps, mailbox, folder);
    if (version !== undefined && (namesTag(ifMatch, version) || namesListOf(ifMatch, version))) return;
    throw problem('precondition-failed', 'The folder has changed since you read it. Read it again, then repeat.');
  };
}

async function presentVersion({ reader }: StoreDeps, mailbox: MailboxName, folder: FolderName) {
  let version = await reader.version(mailbox, folder);
  // A folder that changed a moment ago has no tag yet.
  for (let attempt = 1; version === undefined && attempt < tries; attempt++) {
    await wait(waitMs);
    version = await reader.version(mailbox, folder);
  }
  return version;
}

/** Lists have a tag for each query; those of one state share a prefix, and any of them is accepted. */
function namesListOf(ifMatch: string, version: string): boolean {
  return ifMatch.split(',').some((tag) => tag.trim().replace(/^W\//, '').startsWith(`"${version}.`));
}
