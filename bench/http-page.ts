import { readFileSync } from 'node:fs';
import { definePlugin, defineEndpoint, z } from '../core/plugin.js';

/** Answers one JSON page that it has read from a file: what the way of a request costs, without any work behind it. */
export const httpPage = definePlugin({
  name: 'bench-page',
  options: z.strictObject({ file: z.string().describe('The JSON to answer.') }),
  setup({ http }, { options }) {
    let page: object | undefined;
    http.mount([
      defineEndpoint({
        method: 'GET',
        path: '/bench/page',
        summary: 'A page of 50 rows',
        group: 'Bench',
        access: 'read',
        handle: (): object => (page ??= JSON.parse(readFileSync(options.file, 'utf8')) as object),
      }),
    ]);
  },
});
