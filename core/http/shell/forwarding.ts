import type { IncomingMessage } from 'node:http';
import type { ForwardedRequest, Forwarder, OtherNodes } from '../../contracts/other-nodes.js';
import { problem } from '../../problem.js';
import type { AccessControl } from '../access.js';
import { ownerUsername } from '../accounts.js';
import { hasBody } from '../body.js';
import type { Context, Middleware, Next } from '../exchange.js';
import { readQuery } from '../input.js';
import type { RouteTable } from '../routes.js';
import { validate } from '../validation.js';

const forwarders = new WeakMap<IncomingMessage, Forwarder>();

/** Marks a request of another node, before it is answered. */
export function setForwarder(request: IncomingMessage, forwarder: Forwarder): void {
  forwarders.set(request, forwarder);
}

/** The node that has sent the request on the connection between nodes; undefined for every other client. */
export const forwarderOf = (request: IncomingMessage): Forwarder | undefined => forwarders.get(request);

const nothing = () => problem('not-found', 'There is nothing for other nodes at this address.');

/** Other nodes reach only paths with an endpoint that says which node answers it. */
export function forwardedPaths(table: () => RouteTable): Middleware {
  return function checkForwardedPath(ctx: Context, next: Next) {
    if (ctx.state.exchange.forwarder === undefined) return next(ctx);
    if (
      table()
        .find(ctx.path)
        ?.endpoints.some(({ nodeOf }) => nodeOf !== undefined) !== true
    )
      throw nothing();
    return next(ctx);
  };
}

interface ForwardingDeps {
  readonly otherNodes: () => OtherNodes | undefined;
  readonly access: AccessControl;
}

/**
 * Has a request answered by the node that has what it is about. Access to the endpoint and the origin of the request
 * have been checked here; the other node checks the account again. What another node has sent is never forwarded.
 */
export function forwarding({ otherNodes, access }: ForwardingDeps): Middleware {
  return async function forward(ctx: Context, next: Next) {
    const { exchange, matched } = ctx.state;
    const { nodeOf, params } = matched.route.endpoint;
    if (nodeOf === undefined) {
      if (exchange.forwarder !== undefined) throw nothing();
      return next(ctx);
    }
    const node = await nodeOf({
      params: validate(params, matched.params, 'bad-request', 'names'),
      query: readQuery(ctx, matched),
    });
    const nodes = otherNodes();
    if (node === undefined || node === nodes?.node) return next(ctx);
    if (nodes === undefined) throw problem('not-found', `This server is in no cluster, so there is no node ${node}.`);
    // The token of the owner is worth something on its own machine only.
    if (exchange.forwarder !== undefined || exchange.account?.username === ownerUsername)
      throw problem('misdirected', `The node ${node} has this. Ask it there.`);
    const client = new AbortController();
    ctx.res.once('close', () => client.abort());
    if (ctx.res.closed) client.abort();
    access.untilTakenAway(ctx, () => ctx.res.destroy());
    const answer = await nodes.ask(node, requestOf(ctx), client.signal);
    exchange.answeredBy = node;
    passOn(ctx, answer);
    return undefined;
  };
}

/** All that an endpoint may look at: no credentials, nothing about the connection. */
const sentHeaders = [
  'accept',
  'accept-encoding',
  'accept-language',
  'content-encoding',
  'content-length',
  'content-type',
  'host',
  'hx-boosted',
  'hx-current-url',
  'hx-history-restore-request',
  'hx-request',
  'hx-target',
  'hx-trigger',
  'idempotency-key',
  'if-match',
  'if-none-match',
  'if-range',
  'range',
  'referer',
  'user-agent',
];

function requestOf(ctx: Context): ForwardedRequest {
  const { exchange, body } = ctx.state;
  const headers: Record<string, string> = { 'x-request-id': exchange.id };
  for (const name of sentHeaders) {
    const value = ctx.get(name);
    if (value !== '') headers[name] = value;
  }
  // `matchMethod` reads forms, since they may name a method.
  const form = body.kind === 'form' ? ((ctx.request as { rawBody?: string }).rawBody ?? '') : undefined;
  if (form === undefined && ctx.req.headers.expect !== undefined) ctx.res.writeContinue();
  return {
    method: ctx.method,
    target: ctx.url,
    headers,
    client: {
      account: exchange.account,
      address: exchange.remoteAddress,
      session: exchange.session !== undefined,
    },
    body: form ?? (hasBody(ctx) ? ctx.req : undefined),
  };
}

/** Of this server and its connection, whatever the other node says. */
const ownHeaders = new Set(['strict-transport-security', 'x-request-id']);
/** Of one connection (RFC 9110 §7.6.1), or not for another server to set. */
const droppedHeaders = new Set([
  'connection',
  'date',
  'keep-alive',
  'proxy-authenticate',
  'set-cookie',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'www-authenticate',
]);

function passOn(ctx: Context, answer: IncomingMessage): void {
  const { statusCode: status = 502, headers } = answer;
  // Compressed by the other node where the client accepts it.
  ctx.compress = false;
  for (const name of ctx.res.getHeaderNames()) if (!ownHeaders.has(name)) ctx.res.removeHeader(name);
  const isEmpty = ctx.method === 'HEAD' || status === 204 || status === 304;
  ctx.status = status;
  if (isEmpty) answer.resume();
  ctx.body = isEmpty ? null : answer;
  ctx.status = status;
  ctx.res.removeHeader('Content-Type');
  const named = (headers.connection ?? '').toLowerCase().split(/[\s,]+/);
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || ownHeaders.has(name) || droppedHeaders.has(name) || named.includes(name)) continue;
    ctx.res.setHeader(name, value);
  }
}
