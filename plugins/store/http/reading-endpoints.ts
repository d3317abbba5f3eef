import { type AnyEndpoint, type ByteSource, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { namesTag, sandboxedHtml, sourceOfBytes } from '../../../core/http/response.js';
import { parseFolderName } from '../folders/folder-name.js';
import type { MailboxNames } from '../maildir/mailboxes.js';
import { defaultView, folderPage, mailboxPage, messagePage } from './view-model.js';
import { listDomains, listMailboxes } from './mailbox-list.js';
import type { MessageFile } from '../folders/message-file.js';
import { parseMessageId } from '../maildir/message-name.js';
import { pageOf } from '../maildir/page.js';
import * as answer from './store-answer.js';
import * as schema from './store-query.js';
import type { MessagePlace, StoreReader } from '../messages/store-reader.js';

export interface StoreRoutesInput {
  readonly reader: StoreReader;
  readonly names: MailboxNames;
  /** Current local domains: listed even before the first message arrives. */
  readonly domains: () => readonly string[];
}

const { mailboxesGroup: group, mailboxPath, folderPath } = schema;
const messagePath = `${folderPath}/messages/{messageId}`;

/** Read-only endpoints of `/store`. None of them marks a message as read. */
export function storeEndpoints(deps: StoreRoutesInput): readonly AnyEndpoint[] {
  return [...mailboxEndpoints(deps), ...folderEndpoints(deps), ...messageEndpoints(deps), ...contentEndpoints(deps)];
}

interface PlaceParams {
  readonly domain: string;
  readonly user: string;
  readonly folder: string;
  readonly messageId: string;
}

async function placeOf(names: MailboxNames, params: PlaceParams): Promise<MessagePlace> {
  const folder = parseFolderName(params.folder);
  const id = parseMessageId(params.messageId);
  return { mailbox: await names.parse(params), folder, id };
}

function mailboxEndpoints({ reader, domains, names }: StoreRoutesInput): readonly AnyEndpoint[] {
  return [
    defineEndpoint({
      method: 'GET',
      path: '/store',
      summary: 'Domains that have mailboxes',
      group,
      access: 'operate',
      answer: answer.DomainsAnswer,
      query: schema.ListQuery,
      view: 'domains.njk',
      async handle({ query }) {
        await names.ensureAll();
        return listDomains(reader, domains(), query);
      },
    }),
    defineEndpoint({
      method: 'GET',
      path: '/store/{domain}',
      summary: 'Mailboxes of a domain, with counts and sizes',
      group,
      access: 'operate',
      answer: answer.MailboxesAnswer,
      params: schema.MailboxParams.pick({ domain: true }),
      query: schema.ListQuery,
      view: 'domain.njk',
      async handle({ params, query }) {
        await names.ensureAll();
        return listMailboxes(reader, domains(), params.domain, query);
      },
    }),
    defineEndpoint({
      method: 'GET',
      path: mailboxPath,
      summary: 'A mailbox: its folders, size and quota',
      group,
      access: 'operate',
      answer: answer.MailboxAnswer,
      params: schema.MailboxParams,
      view: 'mailbox.njk',
      async handle({ params, request }) {
        const mailbox = await names.parse(params);
        const folders = await reader.folders(mailbox);
        const size = folders.reduce((sum, folder) => sum + folder.size, 0);
        const model = { ...names.describe(mailbox), size, quota: await names.quota(mailbox), folders };
        return request.representation === 'html' ? mailboxPage(model, await names.isInUse(mailbox)) : model;
      },
    }),
  ];
}

function folderEndpoints({ reader, names }: StoreRoutesInput): readonly AnyEndpoint[] {
  return [
    defineEndpoint({
      method: 'GET',
      path: `${mailboxPath}/folders`,
      summary: 'Folders of a mailbox',
      group,
      access: 'operate',
      answer: answer.FoldersAnswer,
      params: schema.MailboxParams,
      query: schema.FoldersQuery,
      async handle({ params, query }) {
        const folders = await reader.folders(await names.parse(params));
        // Folders have no time: their order is their key.
        const keyed = folders.map((folder, index) => ({ receivedAt: index, id: folder.name, folder }));
        const page = pageOf(keyed, query, (a, b) => a.receivedAt - b.receivedAt);
        return { ...page, items: page.items.map(({ folder }) => folder) };
      },
    }),
    defineEndpoint({
      method: 'GET',
      path: folderPath,
      conditions: ['If-None-Match'],
      summary: 'Messages of a folder, newest first',
      group,
      access: 'operate',
      answer: answer.FolderAnswer,
      params: schema.FolderParams,
      query: schema.FolderQuery,
      view: 'folder.njk',
      async handle({ params, query, request }) {
        const folder = parseFolderName(params.folder);
        const mailbox = await names.parse(params);
        const found = await reader.find(mailbox, folder);
        // Of before the list: the tag may be older than the list, never newer. A page also shows other folders.
        const version = request.representation === 'html' ? undefined : found.version;
        const etag = version === undefined ? undefined : tagOf(version, query);
        if (etag !== undefined && namesTag(request.ifNoneMatch, etag)) return respond({ etag });
        const model = await reader.page(found, query);
        if (request.representation !== 'html') return respond({ model, ...(etag === undefined ? {} : { etag }) });
        const folders = await reader.folders(mailbox);
        const { listPath } = request;
        return folderPage({ mailbox: names.describe(mailbox), answer: model, filters: query, folders, listPath });
      },
    }),
    defineEndpoint({
      method: 'GET',
      path: `${folderPath}/properties`,
      conditions: ['If-None-Match'],
      summary: 'Counts, size and dates of a folder',
      group,
      access: 'operate',
      answer: answer.PropertiesAnswer,
      params: schema.FolderParams,
      async handle({ params }) {
        const folder = parseFolderName(params.folder);
        const mailbox = await names.parse(params);
        const etag = await reader.version(mailbox, folder);
        return respond({ model: await reader.properties(mailbox, folder), ...(etag === undefined ? {} : { etag }) });
      },
    }),
  ];
}

function messageEndpoints({ reader, names }: StoreRoutesInput): readonly AnyEndpoint[] {
  return [
    defineEndpoint({
      method: 'GET',
      path: messagePath,
      conditions: ['If-None-Match'],
      summary: 'A message: parsed, or its raw bytes as message/rfc822. Does not mark it read',
      group,
      access: 'operate',
      answer: answer.MessageAnswer,
      params: schema.MessageParams,
      query: schema.MessageQuery,
      produces: ['html', 'json', 'rfc822', 'text'],
      cache: 'no-store',
      view: 'message.njk',
      async handle({ params, query, request }) {
        const place = await placeOf(names, params);
        if (request.representation === 'rfc822') return rawAnswer(await reader.open(place), request.ifNoneMatch);
        const message = await reader.view(place);
        if (request.representation === 'text') {
          return respond({ text: { body: message.text ?? '', contentType: 'text/plain; charset=utf-8' } });
        }
        if (request.representation !== 'html') return message;
        const view = query.view ?? defaultView(message);
        const raw = view === 'raw' ? await reader.rawHead(place) : undefined;
        const { view: _, remote, ...list } = query;
        const [folders, neighbours] = await Promise.all([
          reader.folders(place.mailbox),
          reader.neighbours(place, list),
        ]);
        const input = { view, remote, raw, folders, neighbours, list: schema.listQuery(list) };
        return messagePage(names.describe(place.mailbox), message, input);
      },
    }),
  ];
}

function contentEndpoints({ reader, names }: StoreRoutesInput): readonly AnyEndpoint[] {
  return [
    defineEndpoint({
      method: 'GET',
      path: `${messagePath}/html`,
      summary: 'The HTML body, sanitised, as a sandboxed document',
      group,
      access: 'operate',
      params: schema.MessageParams,
      query: schema.HtmlQuery,
      produces: ['bytes'],
      cache: 'no-store',
      async handle({ params, query }) {
        const remote = query.remote === true;
        const { document } = await reader.html(await placeOf(names, params), remote);
        return sandboxedHtml(document ?? '', remote);
      },
    }),
    defineEndpoint({
      method: 'GET',
      path: `${messagePath}/parts/{part}`,
      conditions: ['If-None-Match'],
      summary: 'One MIME part, decoded',
      group,
      access: 'operate',
      params: schema.PartParams,
      query: schema.PartQuery,
      produces: ['bytes'],
      cache: 'no-store',
      async handle({ params, query }) {
        const found = await reader.part(await placeOf(names, params), params.part);
        const charset = found.charset === null ? '' : `; charset=${found.charset}`;
        return respond({
          etag: `${unique(params.messageId)}.${params.part}`,
          bytes: {
            source: sourceOfBytes(found.bytes),
            contentType: `${found.contentType}${charset}`,
            filename: found.filename ?? `part-${params.part}`,
            disposition: query.download === true ? 'attachment' : 'inline',
          },
        });
      },
    }),
  ];
}

function tagOf(version: string, query: object): string {
  return `${version}.${Buffer.from(JSON.stringify(query)).toString('base64url')}`;
}

/** The id without its sizes: their commas would separate entity tags. */
function unique(id: string): string {
  return id.replace(/,.*$/s, '');
}

async function rawAnswer(file: MessageFile, known: string | undefined) {
  const etag = unique(file.entry.id);
  if (namesTag(known, etag)) {
    await file.handle.close();
    return respond({ etag });
  }
  return respond({
    etag,
    bytes: {
      source: sourceOfFile(file),
      contentType: 'message/rfc822',
      filename: `${etag}.eml`,
    },
  });
}

function sourceOfFile({ handle, size }: MessageFile): ByteSource {
  return {
    size,
    open: (start, end) => handle.createReadStream({ start, end, autoClose: false }),
    close: () => handle.close(),
  };
}
