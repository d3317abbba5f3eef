import { z } from 'zod';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { pluralize } from '../../../core/text/format.js';
import { type AnyEndpoint, defineEndpoint, respond, type Response } from '../../../core/http/endpoint.js';
import { ask } from '../../../core/http/response.js';
import { problem } from '../../../core/problem.js';
import type { FolderName } from '../folders/folder-name.js';
import { expectCount, FolderField, preview, previewAnswer, sampleSize } from './selection.js';
import { domainHref, folderHref, mailboxHref } from './view-model.js';
import * as schema from './store-query.js';
import { mailboxesGroup, mailboxPath, type StoreDeps } from './store-query.js';

const access = 'operate';
const dryRun = z.boolean().optional().describe('Only count, and show some of them.');
const expect = z.int().min(0).optional().describe('How many it must be; another number is 409.');

/** Mark all as read, empty, clean up; remove mailboxes. */
export function emptyingEndpoints(deps: StoreDeps): readonly AnyEndpoint[] {
  return [markingAll(deps), deletingAll(deps), cleaning(deps), removing(deps)];
}

function markingAll({ reader, editor, names }: StoreDeps): AnyEndpoint {
  return defineEndpoint({
    method: 'POST',
    path: `${mailboxPath}/messages/mark-all-read`,
    summary: 'Mark every message of a folder as read',
    group: mailboxesGroup,
    access,
    params: schema.MailboxParams,
    body: { kind: 'fields', schema: z.strictObject({ folder: FolderField, expect, dryRun }) },
    answer: z.object({ updated: z.int(), ...previewAnswer }),
    async handle({ params, body }) {
      const mailbox = await names.parse(params);
      const { folder } = body;
      const { ids } = await reader.matching(mailbox, folder, { unread: true });
      expectCount(ids.length, body.expect);
      if (body.dryRun === true) return respond({ model: { updated: ids.length, dryRun: true } });
      const { updated } = await editor.messages.mark(mailbox, folder, ids, 'read');
      return respond({
        status: 200,
        model: { updated },
        location: folderHref(names.describe(mailbox), folder.name),
        notice: `${pluralize(updated, 'message')} marked read.`,
        audit: { action: 'messages.mark-all-read', selector: { folder: folder.name }, counts: { updated } },
      });
    },
  });
}

function deletingAll(deps: StoreDeps): AnyEndpoint {
  const { reader, names } = deps;
  return defineEndpoint({
    method: 'POST',
    path: `${mailboxPath}/messages/delete-all`,
    summary: 'Delete every message of a folder permanently',
    group: mailboxesGroup,
    access,
    params: schema.MailboxParams,
    body: { kind: 'fields', schema: z.strictObject({ folder: FolderField, expect, dryRun }) },
    answer: z.object({ deleted: z.int(), ...previewAnswer }),
    async handle({ params, body, request }) {
      const mailbox = await names.parse(params);
      const { folder } = body;
      const { ids, unread } = await reader.matching(mailbox, folder, {});
      expectCount(ids.length, body.expect);
      if (body.dryRun === true) return respond({ model: await dryDelete(deps, mailbox, folder, ids, 'deleted') });
      if (!request.confirmed) {
        return ask(request, {
          question: `Delete all ${pluralize(ids.length, 'message')} of ${folder.name} permanently? ${pluralize(unread, 'message')} of them nobody has read.`,
          fields: { folder: folder.name, expect: String(ids.length) },
          label: 'Delete all of them',
          back: folderHref(names.describe(mailbox), folder.name),
        });
      }
      return removeForGood(deps, mailbox, folder, ids, { action: 'messages.delete-all', count: 'deleted' });
    },
  });
}

function cleaning(deps: StoreDeps): AnyEndpoint {
  const { reader, names, clock } = deps;
  const months = z.int().min(1).max(1200).default(3).describe('Messages that came longer ago are deleted permanently.');
  return defineEndpoint({
    method: 'POST',
    path: `${mailboxPath}/messages/cleanup`,
    summary: 'Delete the old messages of a folder permanently',
    group: mailboxesGroup,
    access,
    params: schema.MailboxParams,
    body: { kind: 'fields', schema: z.strictObject({ folder: FolderField, months, expect, dryRun }) },
    answer: z.object({ affected: z.int(), ...previewAnswer }),
    async handle({ params, body, request }) {
      const mailbox = await names.parse(params);
      const { folder } = body;
      const before = monthsBefore(clock.now(), body.months);
      const { ids } = await reader.matching(mailbox, folder, { before });
      expectCount(ids.length, body.expect);
      if (body.dryRun === true) return respond({ model: await dryDelete(deps, mailbox, folder, ids, 'affected') });
      if (!request.confirmed) {
        const day = new Date(before).toISOString().slice(0, 10);
        return ask(request, {
          question: `Delete ${pluralize(ids.length, 'message')} of ${folder.name} that came before ${day} permanently?`,
          fields: { folder: folder.name, months: String(body.months), expect: String(ids.length) },
          label: 'Delete them',
          back: folderHref(names.describe(mailbox), folder.name),
        });
      }
      return removeForGood(deps, mailbox, folder, ids, { action: 'messages.cleanup', count: 'affected' });
    },
  });
}

async function dryDelete(
  { reader }: StoreDeps,
  mailbox: MailboxName,
  folder: FolderName,
  ids: readonly string[],
  count: string,
): Promise<object> {
  const { sample } = await preview(reader, mailbox, folder, ids.slice(0, sampleSize));
  return { [count]: ids.length, dryRun: true, sample };
}

async function removeForGood(
  { editor, names }: StoreDeps,
  mailbox: MailboxName,
  folder: FolderName,
  ids: readonly string[],
  { action, count }: { readonly action: string; readonly count: string },
): Promise<Response<object>> {
  const { deleted } = await editor.messages.remove(mailbox, folder, ids);
  return respond<object>({
    status: 200,
    model: { [count]: deleted },
    location: folderHref(names.describe(mailbox), folder.name),
    notice: `${pluralize(deleted, 'message')} deleted permanently.`,
    audit: { action, selector: { folder: folder.name }, counts: { deleted } },
  });
}

/** The same time of day `months` earlier; on the last day of a shorter month. */
export function monthsBefore(time: number, months: number): number {
  const date = new Date(time);
  const day = date.getUTCDate();
  date.setUTCDate(1);
  date.setUTCMonth(date.getUTCMonth() - months);
  const last = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 0)).getUTCDate();
  date.setUTCDate(Math.min(day, last));
  return date.getTime();
}

function removing({ reader, editor, names }: StoreDeps): AnyEndpoint {
  return defineEndpoint({
    method: 'DELETE',
    path: mailboxPath,
    summary: 'Remove a mailbox with all its messages permanently; its user must be gone',
    group: mailboxesGroup,
    access,
    problems: ['conflict'],
    params: schema.MailboxParams,
    answer: z.object({ mailbox: z.string(), folders: z.int(), messages: z.int(), size: z.int() }),
    async handle({ params, request }) {
      const name = await names.parse(params);
      const identity = names.describe(name);
      const { mailbox } = identity;
      const refuseUsed = async (): Promise<void> => {
        if (!(await names.isInUse(name))) return;
        throw problem('conflict', `${mailbox} is the mailbox of a user. Remove the user first.`);
      };
      const folders = await reader.folders(name);
      await refuseUsed();
      const messages = folders.reduce((sum, { total }) => sum + total, 0);
      const size = folders.reduce((sum, folder) => sum + folder.size, 0);
      if (!request.confirmed) {
        const what = `${pluralize(messages, 'message')} in ${pluralize(folders.length, 'folder')}`;
        const question = `Delete the mailbox ${mailbox}, with ${what}, permanently?`;
        const back = mailboxHref(identity);
        return ask(request, { question, fields: { _method: 'DELETE' }, label: 'Delete the mailbox', back });
      }
      await editor.mailboxes.remove(name, refuseUsed);
      return respond({
        status: 200,
        model: { mailbox, folders: folders.length, messages, size },
        location: domainHref(identity.domain),
        notice: `The mailbox ${mailbox} was deleted, with ${pluralize(messages, 'message')}.`,
        audit: { action: 'mailbox.delete', selector: { mailbox }, counts: { folders: folders.length, messages } },
      });
    },
  });
}
