import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import type { HeapDump, HeapDumps, TakenDump } from '../system/heap-dumps.js';
import { systemTabs } from './system.js';

const group = 'Service';
const access = 'admin';
const list = '/system/heapdumps';
const bytes = (): z.ZodInt =>
  z
    .int()
    .min(0)
    .max(2 ** 50);
const Dump = z.object({ file: z.string(), size: bytes(), created: z.iso.datetime() });
const Params = z.strictObject({ file: z.string().max(100) });

const pathOf = (file: string): string => `${list}/${encodeURIComponent(file)}`;

export const heapDumpEndpoints = (dumps: HeapDumps): readonly AnyEndpoint[] => [
  takeEndpoint(dumps),
  listEndpoint(dumps),
  downloadEndpoint(dumps),
  removeEndpoint(dumps),
];

const takeEndpoint = (dumps: HeapDumps): AnyEndpoint =>
  defineEndpoint({
    method: 'POST',
    path: '/system/heapdump',
    success: [201],
    summary: 'Take a heap dump; the server does not respond until it is written',
    group,
    access,
    answer: z.object({
      file: z.string(),
      size: bytes(),
      ms: z
        .int()
        .min(0)
        .max(2 ** 40),
    }),
    cache: 'no-store',
    confirm:
      'Take a heap dump? Until it is written the server answers nobody and takes no mail: seconds for a small heap, half ' +
      'a minute or more for a large one. It needs much memory while it is taken, and the file holds everything that is in ' +
      'memory, passwords included.',
    handle: async () => {
      const model = await dumps.take();
      return respond<TakenDump>({
        status: 201,
        model,
        // A form is redirected to the list instead of downloading the file.
        location: list,
        headers: { Location: pathOf(model.file) },
        notice: `The heap dump ${model.file} was taken in ${model.ms} ms.`,
        audit: { action: 'take heap dump', selector: model.file, counts: { bytes: model.size } },
      });
    },
  });

interface DumpList {
  readonly items: readonly HeapDump[];
  readonly total: number;
  readonly limit: number;
  readonly nextCursor: null;
  readonly prevCursor: null;
}

const listEndpoint = (dumps: HeapDumps): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: list,
    summary: 'Heap dumps that were taken, newest first',
    group,
    access,
    answer: z.object({
      items: z.array(Dump),
      total: z.int().min(0).max(1000),
      limit: z.int().min(1).max(1000),
      nextCursor: z.null(),
      prevCursor: z.null(),
    }),
    view: 'heap-dumps.njk',
    cache: 'no-store',
    page: (model: DumpList) => ({ ...model, cost: dumps.cost(), tabs: systemTabs(list) }),
    handle: async (): Promise<DumpList> => {
      const items = (await dumps.list()).slice(0, 1000);
      return { items, total: items.length, limit: 1000, nextCursor: null, prevCursor: null };
    },
  });

const downloadEndpoint = (dumps: HeapDumps): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: `${list}/{file}`,
    conditions: ['If-None-Match'],
    summary: 'Download a heap dump; takes Range',
    group,
    access,
    params: Params,
    produces: ['bytes'],
    cache: 'no-store',
    handle: async ({ params }) =>
      respond({
        etag: params.file,
        bytes: {
          source: await dumps.source(params.file),
          contentType: 'application/octet-stream',
          filename: params.file,
          disposition: 'attachment',
        },
      }),
  });

const removeEndpoint = (dumps: HeapDumps): AnyEndpoint =>
  defineEndpoint({
    method: 'DELETE',
    path: `${list}/{file}`,
    summary: 'Delete a heap dump',
    success: [204],
    group,
    access,
    params: Params,
    confirm: 'Delete this heap dump?',
    handle: async ({ params }) => {
      await dumps.remove(params.file);
      return respond({
        status: 204,
        location: list,
        notice: 'The heap dump was deleted.',
        audit: { action: 'delete heap dump', selector: params.file },
      });
    },
  });
