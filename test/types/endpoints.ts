import { defineEndpoint, definePlugin, problem, respond, z } from '../../core/plugin.js';

const shared = { summary: 'Things', group: 'Site', access: 'read' } as const;

defineEndpoint({
  ...shared,
  method: 'PUT',
  path: '/things/{name}',
  access: 'operate',
  params: z.object({ name: z.string() }),
  query: z.object({ loud: z.stringbool().default(false) }),
  body: { kind: 'fields', schema: z.strictObject({ size: z.int() }) },
  answer: z.object({ name: z.string(), size: z.int() }),
  view: 'thing.njk',
  handle({ params, query, body, request }) {
    const size: number = body.size * (query.loud ? 2 : 1);
    if (request.account === null) throw problem('not-found');
    return { name: params.name, size };
  },
  page: (model) => ({ title: model.name.toUpperCase() }),
});

// @ts-expect-error an endpoint says who may use it
defineEndpoint({ method: 'GET', path: '/things', summary: 'Things', group: 'Site', handle: () => ({}) });

// @ts-expect-error there is no such access
defineEndpoint({ ...shared, method: 'GET', path: '/things', access: 'reed', handle: () => ({}) });

// @ts-expect-error methods are written as in HTTP
defineEndpoint({ ...shared, method: 'get', path: '/things', handle: () => ({}) });

defineEndpoint({
  ...shared,
  method: 'GET',
  path: '/things/{name}',
  params: z.object({ name: z.string() }),
  // @ts-expect-error parameters are what their schema says
  handle: ({ params }) => ({ name: params.title }),
});

defineEndpoint({
  ...shared,
  method: 'GET',
  path: '/things',
  // @ts-expect-error without a schema there is no body
  handle: ({ body }) => ({ size: body.size }),
});

defineEndpoint({
  ...shared,
  method: 'GET',
  path: '/things',
  handle: () => ({ name: 'one' }),
  // @ts-expect-error the page is given what handle returns
  page: (model) => ({ title: model.title }),
});

// @ts-expect-error fields need a schema
defineEndpoint({ ...shared, method: 'POST', path: '/things', body: { kind: 'fields' }, handle: () => ({}) });

// @ts-expect-error a problem has a name from the table
problem('not-there');

// @ts-expect-error a status is a number
respond({ status: '201', model: {} });

definePlugin({
  name: 'wrong-navigation',
  setup({ http }) {
    http.mount([defineEndpoint({ ...shared, method: 'GET', path: '/things', handle: () => ({}) })]);
    http.navigate({ title: 'Things', href: '/things', order: 50, role: 'read' });
    // @ts-expect-error a link has a place among the others
    http.navigate({ title: 'Things', href: '/things', role: 'read' });
    // @ts-expect-error public is no role
    http.navigate({ title: 'Things', href: '/things', order: 50, role: 'public' });
    // @ts-expect-error endpoints come in a list
    http.mount(defineEndpoint({ ...shared, method: 'GET', path: '/things', handle: () => ({}) }));
  },
});
