import { z } from 'zod';
import {
  type LooseMessage,
  type MessageViewer,
  messageViews,
  ViewedMessage,
} from '../../../core/contracts/message-viewer.js';
import type { Entry } from '../../../core/contracts/queue-entry.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { sandboxedHtml, sourceOfBytes } from '../../../core/http/response.js';
import { problem } from '../../../core/problem.js';
import { outboundGroup, type QueueDeps } from './client-deps.js';
import { existingEntry } from './queue-endpoints.js';
import { UidParams } from './queue-page.js';

/** The queued message as the mailbox pages show theirs; nothing without a viewer. */
export function messagePageEndpoints(deps: QueueDeps): readonly AnyEndpoint[] {
  const { viewer } = deps;
  return viewer === undefined ? [] : [page(deps, viewer), html(deps, viewer), part(deps, viewer)];
}

const path = '/client/queue/{uid}/content';
const common = { method: 'GET', group: outboundGroup, access: 'operate', cache: 'no-store' } as const;
const remote = z.boolean().optional().describe('Pictures from other servers are shown.');

const page = (deps: QueueDeps, viewer: MessageViewer) =>
  defineEndpoint({
    ...common,
    path,
    summary: 'The message of an entry, parsed',
    params: UidParams,
    query: z.strictObject({
      view: z.enum(messageViews).optional().describe('What the page shows of the message.'),
      remote,
    }),
    answer: ViewedMessage,
    view: 'message.njk',
    async handle({ params: { uid }, query, request }) {
      const { entry, message } = await messageOf(deps, uid);
      const entryHref = `/client/queue/${uid}`;
      const place = { path: `${entryHref}/content`, rawHref: `${entryHref}/message`, ...query };
      const model =
        request.representation === 'html'
          ? { ...(await viewer.page(message, place)), uid, entryHref, state: entry.state }
          : await viewer.view(message);
      return respond<object>({ model, audit: { action: 'queue.read message', selector: { uid } } });
    },
  });

const html = (deps: QueueDeps, viewer: MessageViewer) =>
  defineEndpoint({
    ...common,
    path: `${path}/html`,
    summary: 'The HTML body of the message of an entry, sanitised, as a sandboxed document',
    params: UidParams,
    query: z.strictObject({ remote }),
    produces: ['bytes'],
    async handle({ params: { uid }, query }) {
      const isRemote = query.remote === true;
      const { message } = await messageOf(deps, uid);
      return sandboxedHtml(await viewer.html(message, isRemote), isRemote);
    },
  });

const part = (deps: QueueDeps, viewer: MessageViewer) =>
  defineEndpoint({
    ...common,
    path: `${path}/parts/{part}`,
    summary: 'One MIME part of the message of an entry, decoded',
    params: UidParams.extend({
      part: z.string().regex(/^(?:\d{1,5}\.){0,200}\d{1,5}$/, 'must be a part number such as 1 or 2.1'),
    }),
    query: z.strictObject({ download: z.boolean().optional().describe('Saved instead of shown.') }),
    produces: ['bytes'],
    async handle({ params, query }) {
      const { message } = await messageOf(deps, params.uid);
      const { bytes, contentType, charset, filename } = await viewer.part(message, params.part);
      return respond({
        bytes: {
          source: sourceOfBytes(bytes),
          contentType: charset === null ? contentType : `${contentType}; charset=${charset}`,
          filename: filename ?? `part-${params.part}`,
          disposition: query.download === true ? 'attachment' : 'inline',
        },
      });
    },
  });

async function messageOf(
  { queue, quarantineNote }: QueueDeps,
  uid: string,
): Promise<{ readonly entry: Entry; readonly message: LooseMessage }> {
  const entry = await existingEntry(uid, queue, quarantineNote);
  if (!entry.hasMessage)
    throw problem('not-found', 'The message of this entry has been removed: all its recipients are settled.');
  return { entry, message: { size: entry.size, open: () => queue.open(uid) } };
}
