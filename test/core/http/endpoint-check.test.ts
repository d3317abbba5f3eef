import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { z } from 'zod';
import type { Endpoint } from '../../../core/http/endpoint.js';
import { refuseBadEndpoint } from '../../../core/http/endpoint-check.js';
import { isStartError } from '../../../core/problem.js';

const good = {
  method: 'POST',
  path: '/things/{name}',
  summary: 'Things',
  group: 'Site',
  access: 'read',
  params: z.object({ name: z.string() }),
  query: z.object({}),
  answer: z.object({}),
  body: { kind: 'either', schema: z.object({}), types: ['text/plain'] },
  produces: ['html', 'json'],
  handle: () => ({}),
};

const check = (changed: object) => refuseBadEndpoint('greylist', { ...good, ...changed } as unknown as Endpoint);

const wrong: readonly (readonly [object, RegExp])[] = [
  [{ method: 'get' }, /there is no method "get"; methods: GET/],
  [{ path: 'things' }, /path must begin with/],
  [{ path: undefined }, /path must begin with/],
  [{ path: '/assets/x' }, /below \/assets\//],
  [{ summary: '' }, /summary must be/],
  [{ group: 3 }, /group must be/],
  [{ access: 'reed' }, /there is no access "reed"; access: public, read, operate, admin/],
  [{ access: undefined }, /there is no access undefined/],
  [{ produces: ['html', 'pdf'] }, /no representation "pdf"/],
  [{ produces: 'html' }, /produces must be a list/],
  [{ handle: undefined }, /handle must be a function/],
  [{ params: { name: 'string' } }, /params must be a zod schema/],
  [{ query: null }, /query must be a zod schema/],
  [{ answer: 'thing' }, /answer must be a zod schema/],
  [{ body: z.object({}) }, /body\.kind must be one of fields, raw, either/],
  [{ body: { kind: 'fields', schema: {} } }, /body\.schema must be a zod schema/],
  [{ body: { kind: 'raw' } }, /body\.types must be a list/],
];

describe('an endpoint that plain JavaScript declares', () => {
  test('is taken when it is right', () => {
    check({});
    for (const key of ['params', 'query', 'answer', 'body', 'produces']) check({ [key]: undefined });
    check({ body: { kind: 'raw', types: ['*/*'] } });
  });

  for (const [changed, expected] of wrong) {
    test(`is refused by name with ${JSON.stringify(changed)}`, () => {
      assert.throws(
        () => check(changed),
        (error) =>
          isStartError(error) && error.message.startsWith('Plugin greylist, endpoint ') && expected.test(error.message),
      );
    });
  }
});
