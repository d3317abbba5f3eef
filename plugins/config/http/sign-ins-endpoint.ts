import { z } from 'zod';
import {
  type SignInHistory,
  signInProtocols,
  type SignInPage,
  signInResults,
} from '../../../core/contracts/sign-in-history.js';
import { type AnyEndpoint, defineEndpoint } from '../../../core/http/endpoint.js';

const word = (what: string) => z.string().trim().max(200).optional().describe(what);

const Entry = z.object({
  username: z.string().describe('As it was given; with names "several" the last one.'),
  address: z.string().describe('A network when names are "several"; empty for all beyond the bound of a day.'),
  protocol: z.enum(signInProtocols),
  result: z.enum(signInResults).describe('"deferred" was not checked: too many failures, or the server was too busy.'),
  first: z.iso.datetime(),
  last: z.iso.datetime(),
  count: z.int().describe('Equal attempts within the hour; with names "several", within the day.'),
  names: z.enum(['one', 'several']),
});

const protocolNames = {
  page: 'Sign-in page',
  basic: 'HTTP Basic',
  smtp: 'SMTP',
  authenticate: 'users/authenticate',
} as const;
const resultNames = { accepted: 'accepted', refused: 'refused', deferred: 'not checked' } as const;
const tones = { accepted: 'good', refused: 'bad', deferred: 'warn' } as const;

/** Attempts to sign in over HTTP and SMTP. */
export function signInsEndpoint(history: SignInHistory): AnyEndpoint {
  return defineEndpoint({
    method: 'GET',
    path: '/sign-ins',
    summary: 'Sign-ins of the last 90 days, accepted and refused: who, from where, by which protocol',
    group: 'Configuration',
    access: 'admin',
    query: z.strictObject({
      user: word('Part of the user name.'),
      address: word('What the address begins with.'),
      protocol: z.enum(signInProtocols).optional(),
      result: z.enum(signInResults).optional(),
      limit: z.int().min(1).max(1000).default(50).describe('Entries of one page.'),
      cursor: z.string().max(100).optional().describe('As an earlier answer gave it.'),
    }),
    answer: z.object({ items: z.array(Entry), limit: z.int(), nextCursor: z.string().nullable() }),
    view: 'sign-ins.njk',
    cache: 'no-store',
    page: (model: SignInPage, { query, request }) => ({
      ...model,
      items: model.items.map((entry) => ({
        ...entry,
        protocolName: protocolNames[entry.protocol],
        resultName: resultNames[entry.result],
        tone: tones[entry.result],
      })),
      query,
      filtered: [query.user, query.address, query.protocol, query.result].some((value) => value !== undefined),
      protocols: [
        { value: '', label: 'any' },
        ...signInProtocols.map((value) => ({ value, label: protocolNames[value] })),
      ],
      results: [{ value: '', label: 'any' }, ...signInResults.map((value) => ({ value, label: resultNames[value] }))],
      listPath: request.listPath,
    }),
    handle: ({ query }) => history.find(query),
  });
}
