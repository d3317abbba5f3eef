import { isTls } from '../request-checks.js';
import { randomUUID } from 'node:crypto';
import { isIP } from 'node:net';
import type { Clock } from '../../clock.js';
import { normalAddress } from '../../net/ip-address.js';
import type { Log } from '../../log/log.js';
import type { PluginContext } from '../../plugin.js';
import type { NetworkSet } from '../../net/networks.js';
import type { Context, Next, Middleware } from '../exchange.js';
import { isLoopback, plainAddress } from '../request-checks.js';

const safeId = /^[A-Za-z0-9._-]{8,64}$/;

/** Sets the request id: the client's when its characters are safe, else a new one. */
export function beginExchange(clock: Clock, trustedProxies: () => NetworkSet): Middleware {
  return function begin(ctx: Context, next: Next) {
    const given = ctx.get('X-Request-Id');
    const id = safeId.test(given) ? given : randomUUID();
    const peer = plainAddress(ctx.req.socket.remoteAddress ?? '');
    const forwardedFor = ctx.get('X-Forwarded-For');
    const remoteAddress = forwardedFor === '' ? peer : clientAddress(peer, forwardedFor, trustedProxies());
    const protocol = ctx.get('X-Forwarded-Proto').split(',', 1)[0]?.trim().toLowerCase();
    const isForwarded = forwardedFor !== '' || ctx.get('Forwarded') !== '';
    ctx.state.exchange = {
      id,
      started: clock.monotonic(),
      remoteAddress,
      isLocal: isLoopback(remoteAddress) && !isForwarded,
      isSecure: isTls(ctx.req.socket) || (protocol === 'https' && trustedProxies().has(peer)),
      account: null,
      session: undefined,
      route: undefined,
      params: {},
      page: undefined,
      asked: false,
      audit: undefined,
    };
    ctx.res.setHeader('X-Request-Id', id);
    return next();
  };
}

/** The last address that is no trusted proxy; anything left of it may be forged. */
function clientAddress(peer: string, forwardedFor: string, trusted: NetworkSet): string {
  let address = peer;
  for (const hop of forwardedFor.split(',').toReversed()) {
    if (!trusted.has(address)) break;
    const bare = normalAddress(hop.trim().replace(/^\[([^\]]+)\](?::\d+)?$|^([^:]+):\d+$/, '$1$2'));
    if (isIP(bare) === 0) break;
    address = bare;
  }
  return address;
}

/** Logs and counts every request when its response is sent: rate, errors and duration by method and route. */
export function accessLog(log: Log, clock: Clock, metrics: PluginContext['metrics']): Middleware {
  const requests = metrics.counter('http_requests_total', 'Requests answered, by method, route and class of status.', [
    'method',
    'route',
    'status',
  ]);
  const seconds = metrics.histogram(
    'http_request_seconds',
    'Time from request to complete answer, in seconds.',
    [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
    ['method', 'route'],
  );
  return function logAccess(ctx: Context, next: Next) {
    ctx.res.once('close', () => {
      const { exchange } = ctx.state;
      const ms = clock.monotonic() - exchange.started;
      const method = knownMethods.has(ctx.method) ? ctx.method : 'OTHER';
      const route = exchange.route?.endpoint.path ?? (ctx.path.startsWith('/assets/') ? '/assets/*' : 'none');
      const { statusCode } = ctx.res;
      requests.inc({ method, route, status: `${Math.floor(statusCode / 100)}xx` });
      seconds.observe({ method, route }, ms / 1000);
      const complete = ctx.res.writableFinished;
      const line = {
        requestId: exchange.id,
        method,
        path: ctx.path.slice(0, 500),
        route,
        status: statusCode,
        ms: Math.round(ms * 10) / 10,
      };
      const level = route === '/assets/*' ? 'debug' : 'info';
      log[level](
        { ...line, account: exchange.account?.username ?? null, remote: exchange.remoteAddress, complete },
        'request',
      );
    });
    return next();
  };
}

const knownMethods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
