import { z } from 'zod';
import { isProblem, problem } from '../../problem.js';
import { type AccessControl, setSessionCookie, signInPath, unauthorized } from '../access.js';
import { type AnyEndpoint, defineEndpoint, type EndpointRequest, respond } from '../endpoint.js';
import type { Context, Middleware, Next } from '../exchange.js';
import { contextOf } from '../input.js';
import { prefersHtml } from '../negotiation.js';
import type { HttpSettings } from '../options.js';
import { isOwnPath, ownReferer, withParameter } from '../referer.js';
import { browserName, type BrowserSession, type BrowserSessions } from '../sessions.js';

const maxNextLength = 2000;

/** A path of this server to go to after the sign-in; never another sign-in. */
function nextPath(given: string | undefined): string {
  const isGood = given !== undefined && given.length <= maxNextLength && isOwnPath(given);
  return isGood && !/^\/sign-(?:in|out)(?:[/?#]|$)/.test(given) ? given : '/';
}

/**
 * Answers a request without credentials: a page request and htmx are redirected to the sign-in page; a form gets 401 with
 * the advice to send it again. Scripts, and requests with wrong credentials, get the Basic challenge.
 */
export function offerSignIn(): Middleware {
  return async function offer(ctx: Context, next: Next) {
    try {
      await next(ctx);
    } catch (error) {
      const isOurs = isProblem(error) && error.details.instead?.[0]?.href === signInPath;
      if (!isOurs || ctx.get('Authorization') !== '') throw error;
      await answerUnsigned(ctx, error);
    }
  };
}

function answerUnsigned(ctx: Context, error: unknown): Promise<void> {
  const isSafe = ctx.method === 'GET' || ctx.method === 'HEAD';
  const isHtmx = ctx.get('HX-Request') === 'true';
  const isPage = prefersHtml(ctx.get('Accept'));
  if (isSafe && isPage && !isHtmx) {
    ctx.status = 303;
    ctx.set({ Location: signInFor(ctx.url), 'Cache-Control': 'no-store' });
    ctx.body = '';
    return Promise.resolve();
  }
  // Only browsers send Sec-Fetch-Dest; to Basic, one would open a dialog over the page.
  if (!isHtmx && !isPage && ctx.get('Sec-Fetch-Dest') === '') throw error;
  const detail = isSafe
    ? 'You are signed out.'
    : `You are signed out. Sign in in another tab, then ${isHtmx ? 'try again' : 'reload this page to send the form again'}.`;
  throw problem('unauthorized', {
    detail,
    headers: {
      'WWW-Authenticate': 'Cookie realm="Postern"',
      ...(isHtmx && isSafe && { 'HX-Redirect': signInFor(currentPage(ctx)) }),
    },
    instead: [{ href: signInPath, title: 'Sign in' }],
  });
}

const signInFor = (page: string): string => {
  const next = nextPath(withParameter(page, 'notice', undefined));
  return next === '/' ? signInPath : `${signInPath}?next=${encodeURIComponent(next)}`;
};

/** The page in the browser, of which htmx asks for a part. */
function currentPage(ctx: Context): string {
  const url = ctx.get('HX-Current-URL');
  if (!URL.canParse(url)) return ownReferer(ctx) ?? '/';
  const { host, pathname, search } = new URL(url);
  return host === ctx.get('Host').toLowerCase() ? `${pathname}${search}` : '/';
}

interface SignInDeps {
  readonly access: AccessControl;
  readonly sessions: () => BrowserSessions;
  readonly settings: () => HttpSettings;
}

const group = 'Access';
const Next = z.string().max(maxNextLength).optional().describe('Path of this server to go to afterwards.');
const SessionAnswer = z.object({
  id: z.string(),
  address: z.string().describe('Where it signed in from.'),
  browser: z.string(),
  since: z.iso.datetime(),
  lastUsed: z.iso.datetime(),
  current: z.boolean().describe('The session of this request.'),
});

export function signInEndpoints(deps: SignInDeps): readonly AnyEndpoint[] {
  return [signInPage(), signIn(deps), signOut(deps), listSessions(deps), endSessions(deps)];
}

const signInPage = () =>
  defineEndpoint({
    method: 'GET',
    path: signInPath,
    summary: 'Sign in',
    group,
    access: 'public',
    query: z.strictObject({ next: Next }),
    answer: z.object({ next: z.string(), username: z.string().nullable() }),
    success: [200, 303],
    view: 'sign-in.njk',
    cache: 'no-store',
    handle: ({ query, request }) => {
      const next = nextPath(query.next);
      const model = { next, username: request.account?.username ?? null };
      const isIn = contextOf(request).state.exchange.session !== undefined && request.representation === 'html';
      return isIn
        ? respond({ status: 303, headers: { Location: encodeURI(next).replaceAll('%25', '%') }, model })
        : model;
    },
  });

const signIn = ({ access, sessions, settings }: SignInDeps) =>
  defineEndpoint({
    method: 'POST',
    path: signInPath,
    summary: 'Sign in: the answer sets a session cookie; 429 after repeated failures',
    group,
    access: 'public',
    body: {
      kind: 'fields',
      schema: z.strictObject({
        username: z.string().min(1, 'Enter your user name.').max(128),
        password: z.string().min(1, 'Enter your password.').max(1024),
        next: Next,
      }),
      limit: 16 * 1024,
    },
    answer: z.object({ username: z.string(), role: z.enum(['read', 'operate', 'admin']), next: z.string() }),
    problems: ['unauthorized', 'too-many-requests'],
    changes: false,
    cache: 'no-store',
    handle: async ({ body: { username, password, next: given }, request }) => {
      const ctx = contextOf(request);
      const account = await access.signIn(ctx, { username, password });
      if (account === undefined) throw wrongPassword(request);
      const before = ctx.state.exchange.session;
      if (before !== undefined) await sessions().end(before.username, ({ id }) => id === before.id);
      const browser = browserName(ctx.get('User-Agent'));
      const token = await sessions().begin(account, { address: request.remoteAddress, browser });
      if (token === undefined) throw wrongPassword(request);
      setSessionCookie(ctx, token, settings().limits.sessionSeconds);
      const next = nextPath(given);
      return respond({ status: 200, location: next, model: { username: account.username, role: account.role, next } });
    },
  });

/** The page shows it beside the field; a script learns that Basic is possible, too. */
function wrongPassword({ representation }: EndpointRequest): unknown {
  if (representation !== 'html') return unauthorized('Postern');
  const message = 'Wrong user name or password.';
  return problem('invalid', { detail: message, errors: [{ pointer: '/password', message }] });
}

const signOut = ({ sessions }: SignInDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/sign-out',
    summary: 'Sign out: the session of the cookie ends',
    group,
    access: 'public',
    body: { kind: 'fields', schema: z.strictObject({}), limit: 16 * 1024 },
    answer: z.object({ ended: z.int() }),
    changes: false,
    cache: 'no-store',
    handle: async ({ request }) => {
      const ctx = contextOf(request);
      const { session } = ctx.state.exchange;
      const ended = session === undefined ? 0 : await sessions().end(session.username, ({ id }) => id === session.id);
      setSessionCookie(ctx, '', 0);
      return respond({ status: 200, location: signInPath, model: { ended } });
    },
  });

const listSessions = ({ sessions, settings }: SignInDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/sessions',
    summary: 'Your sessions: browsers that are signed in with your account',
    group,
    access: 'read',
    answer: z.object({ username: z.string(), sessions: z.array(SessionAnswer) }),
    view: 'sessions.njk',
    cache: 'no-store',
    handle: async ({ request }) => {
      const username = request.account?.username ?? '';
      const current = contextOf(request).state.exchange.session;
      return { username, sessions: (await sessions().list(username)).map((one) => shown(one, current)) };
    },
    page: (model) => {
      const { sessionIdleSeconds, sessionSeconds } = settings().limits;
      return { ...model, sessionIdleSeconds, sessionSeconds };
    },
  });

const shown = ({ id, address, browser, since, lastUsed }: BrowserSession, current: BrowserSession | undefined) => ({
  id,
  address,
  browser,
  since: new Date(since).toISOString(),
  lastUsed: new Date(lastUsed).toISOString(),
  current: id === current?.id,
});

const endSessions = ({ sessions }: SignInDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/sessions/end',
    summary: 'End one of your sessions, or all but the current one',
    group,
    access: 'read',
    body: {
      kind: 'fields',
      schema: z
        .strictObject({
          id: z.string().min(1).max(40).optional(),
          others: z.boolean().optional().describe('All but the session of this request.'),
        })
        .refine(({ id, others = false }) => (id !== undefined) !== others, 'give either id or others: true'),
    },
    answer: z.object({ ended: z.int() }),
    problems: ['not-found'],
    cache: 'no-store',
    handle: async ({ body: { id: wanted }, request }) => {
      const username = request.account?.username ?? '';
      const current = contextOf(request).state.exchange.session;
      const ended = await sessions().end(username, ({ id }) =>
        wanted === undefined ? id !== current?.id : id === wanted,
      );
      if (wanted !== undefined && ended === 0) throw problem('not-found', 'You have no such session.');
      return respond({
        status: 200,
        location: '/sessions',
        model: { ended },
        notice: ended === 1 ? 'One session was ended.' : `${ended} sessions were ended.`,
        audit: { action: 'end sessions', counts: { ended } },
      });
    },
  });
