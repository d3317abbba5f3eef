import { Readable } from 'node:stream';
import { z } from 'zod';
import { type AnyEndpoint, type ByteSource, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';

const Name = z.strictObject({ name: z.string().regex(/^[\p{L}\d._ -]{1,40}$/u) });
const Item = z.strictObject({
  name: z.string().min(1).max(40),
  size: z.int().min(0).max(1_000_000).default(0),
  loud: z.boolean().default(false),
  text: z.string().max(100_000).default(''),
  tags: z.array(z.string()).default([]),
});
type Item = z.output<typeof Item>;

const states = ['queued', 'delivered', 'deferred', 'bounced', 'held'];

export const bytesOf = (text: string, close: () => unknown = () => undefined): ByteSource => ({
  size: Buffer.byteLength(text),
  open: (start, end) => Readable.from([Buffer.from(text).subarray(start, end + 1)]),
  close: () => Promise.resolve(void close()),
});

export interface Demonstration {
  readonly endpoints: readonly AnyEndpoint[];
  readonly items: Map<string, Item>;
  /** Sources of bytes that were closed so far. */
  readonly closed: () => number;
}

/** Endpoints of a plugin that keeps items in memory; between them they use every power of a declaration. */
export function demonstration(): Demonstration {
  const items = new Map<string, Item>();
  let closed = 0;
  const versionOf = (name: string): string | undefined => {
    const item = items.get(name);
    return item === undefined ? undefined : `${name}-${item.size}`;
  };
  const find = (name: string): Item => {
    const item = items.get(name);
    if (item === undefined) throw problem('not-found', `There is no item ${name}.`);
    return item;
  };
  const endpoints = [
    defineEndpoint({
      method: 'GET',
      path: '/items',
      summary: 'List the items',
      group: 'Demo',
      access: 'read',
      view: 'list.njk',
      query: z.strictObject({
        q: z.string().optional(),
        order: z.enum(['newest', 'oldest']).optional(),
        limit: z.int().min(1).max(1000).default(50),
        loud: z.boolean().optional(),
        cursor: z.string().optional(),
      }),
      handle: ({ query }) => {
        const all = [...items.values()].filter(({ name }) => query.q === undefined || name.includes(query.q));
        const page = all.slice(0, query.limit);
        return {
          items: page,
          total: all.length,
          limit: query.limit,
          nextCursor: all.length > page.length ? 'c2' : null,
          prevCursor: null,
        };
      },
      page: (model, { query }) => ({
        ...model,
        q: query.q ?? '',
        items: model.items.map((item, index) => ({
          ...item,
          state: states[index % states.length],
          at: '2026-11-20T12:00:00Z',
        })),
      }),
    }),
    defineEndpoint({
      method: 'POST',
      path: '/items',
      summary: 'Add an item',
      group: 'Demo',
      access: 'operate',
      body: { kind: 'fields', schema: Item, limit: 200_000 },
      handle: ({ body }) => {
        if (items.has(body.name)) throw problem('conflict', `There is an item ${body.name} already.`);
        items.set(body.name, body);
        return respond({
          model: body,
          location: `/items/${encodeURIComponent(body.name)}`,
          notice: `${body.name} was added.`,
          audit: { action: 'add', counts: { items: 1 } },
        });
      },
    }),
    defineEndpoint({
      method: 'POST',
      path: '/notes',
      summary: 'Add a note',
      group: 'Demo',
      access: 'operate',
      body: { kind: 'fields', schema: Name },
      again: ({ fields, problem: { details } }) =>
        respond<unknown>({
          view: 'demo/list.njk',
          model: { items: [], total: 0, q: `${String(fields['name'])}: ${details.detail}` },
        }),
      handle: ({ body: { name } }) => {
        if (name === 'taken') throw problem('invalid', 'It is taken.');
        if (name === 'there') throw problem('conflict', 'It is there.');
        return { name };
      },
    }),
    defineEndpoint({
      method: 'DELETE',
      path: '/items',
      summary: 'Remove all items',
      group: 'Demo',
      access: 'admin',
      confirm: 'Remove all items?',
      handle: () => {
        const deleted = items.size;
        items.clear();
        return respond({ model: { deleted }, location: '/items', notice: `${deleted} removed.` });
      },
    }),
    defineEndpoint({
      method: 'POST',
      path: '/items/clear',
      summary: 'Remove all items at once',
      group: 'Demo',
      access: 'admin',
      handle: () => {
        items.clear();
        return {};
      },
    }),
    defineEndpoint({
      method: 'GET',
      path: '/items/{name}',
      summary: 'One item',
      group: 'Demo',
      access: 'read',
      params: Name,
      handle: ({ params }) => {
        const item = find(params.name);
        return respond({ model: item, etag: versionOf(params.name) ?? '' });
      },
    }),
    defineEndpoint({
      method: 'PUT',
      path: '/items/{name}',
      summary: 'Change an item',
      group: 'Demo',
      access: 'operate',
      params: Name,
      body: { kind: 'fields', schema: z.strictObject({ size: z.int().min(0).max(1_000_000) }) },
      etag: ({ params }) => versionOf(params.name),
      handle: ({ params, body }) => {
        const changed = { ...find(params.name), ...body };
        items.set(params.name, changed);
        return respond({ model: changed, etag: versionOf(params.name) ?? '' });
      },
    }),
    defineEndpoint({
      method: 'DELETE',
      path: '/items/{name}',
      summary: 'Remove an item',
      group: 'Demo',
      access: 'operate',
      params: Name,
      confirm: 'Remove this item?',
      handle: ({ params }) => {
        find(params.name);
        items.delete(params.name);
        return respond({ model: { deleted: 1 }, location: '/items', notice: `${params.name} is gone.` });
      },
    }),
    defineEndpoint({
      method: 'GET',
      path: '/bytes',
      summary: 'Twenty bytes',
      group: 'Demo',
      access: 'read',
      produces: ['bytes'],
      query: z.strictObject({ type: z.string().default('text/plain'), filename: z.string().optional() }),
      handle: ({ query }) =>
        respond({
          etag: 'twenty',
          bytes: {
            source: bytesOf('0123456789abcdefghij', () => (closed += 1)),
            contentType: query.type,
            ...(query.filename === undefined ? {} : { filename: query.filename }),
          },
        }),
    }),
    defineEndpoint({
      method: 'POST',
      path: '/upload',
      summary: 'Count the bytes of a body',
      group: 'Demo',
      access: 'operate',
      body: {
        kind: 'raw',
        types: ['message/rfc822', 'application/octet-stream', 'multipart/form-data'],
      },
      handle: async ({ request }) => {
        let size = 0;
        for (const file of request.files) for await (const chunk of file.open()) size += (chunk as Buffer).length;
        if (request.stream !== undefined) for await (const chunk of request.stream) size += (chunk as Buffer).length;
        return { size, names: request.files.map(({ filename }) => filename) };
      },
    }),
    defineEndpoint({
      method: 'GET',
      path: '/open',
      summary: 'Whether it lives',
      group: 'Demo',
      access: 'public',
      handle: ({ request }) => ({ status: 'UP', who: request.account?.username ?? null }),
    }),
    defineEndpoint({
      method: 'GET',
      path: '/words',
      summary: 'As text or JSON',
      group: 'Demo',
      access: 'read',
      produces: ['text', 'json'],
      fallback: 'text',
      handle: ({ request }) =>
        request.representation === 'text'
          ? respond({ text: { body: 'words\n', contentType: 'text/plain; charset=utf-8' } })
          : { words: ['words'] },
    }),
    defineEndpoint({
      method: 'GET',
      path: '/events',
      summary: 'A stream without an end',
      group: 'Demo',
      access: 'read',
      produces: ['events'],
      handle: ({ request }) => {
        const source = new Readable({ read: () => undefined });
        source.push(': open\n\n');
        request.signal.addEventListener('abort', () => source.push(null));
        return respond({ stream: { source, contentType: 'text/event-stream' } });
      },
    }),
    defineEndpoint({
      method: 'GET',
      path: '/secret',
      summary: 'For administrators',
      group: 'Demo',
      access: 'admin',
      cache: 'no-store',
      handle: () => ({ secret: 'planted' }),
    }),
    defineEndpoint({
      method: 'GET',
      path: '/broken',
      summary: 'Fails',
      group: 'Demo',
      access: 'read',
      produces: ['html', 'json'],
      view: 'list.njk',
      handle: () => {
        throw new Error('the secret path is /var/lib/secret');
      },
    }),
  ];
  return { endpoints, items, closed: () => closed };
}
