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
import { forwarderOf } from './forwarding.js';

const safeId = /^[A-Za-z0-9._-]{8,64}$/;

/** Sets the request id: the client's when its characters are safe, else a new one. */
export function beginExchange(clock: Clock, trustedProxies: () => NetworkSet): Middleware {
  return function begin(ctx: Context, next: Next) {
    const { headers } = ctx.req;
    const given = headers['x-request-id'];
    const id = typeof given === 'string' && safeId.test(given) ? given : randomUUID();
    const peer = plainAddress(ctx.req.socket.remoteAddress ?? '');
    const forwardedFor = ctx.get('X-Forwarded-For');
    const forwarder = forwarderOf(ctx.req);
    const remoteAddress =
      forwarder?.address ?? (forwardedFor === '' ? peer : clientAddress(peer, forwardedFor, trustedProxies()));
    const isForwarded = forwardedFor !== '' || headers.forwarded !== undefined;
    ctx.state.exchange = {
      id,
      started: clock.monotonic(),
      remoteAddress,
      isLocal: isLoopback(remoteAddress) && !isForwarded && forwarder === undefined,
      isSecure: isTls(ctx.req.socket) || (isForwardedHttps(ctx) && trustedProxies().has(peer)),
      forwarder,
      answeredBy: undefined,
      account: null,
      identified: undefined,
      session: undefined,
      route: undefined,
      params: {},
      page: undefined,
      asked: false,
      audit: undefined,
      leavePlace: undefined,
      atEnd: [],
    };
    ctx.res.setHeader('X-Request-Id', id);
    return next(ctx);
  };
}

const isForwardedHttps = (ctx: Context): boolean =>
  ctx.get('X-Forwarded-Proto').split(',', 1)[0]?.trim().toLowerCase() === 'https';

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

/**
 * Logs and counts every request when its response is sent: rate, errors and duration by method and route. Assets, and a
 * server that a load balancer finds well, are lines of level debug.
 */
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
  const counts = new Map<string, { count(seconds: number): void }>();
  /** Finding a series by its labels costs more than counting in it. */
  function seriesOf(method: string, route: string, status: string) {
    const key = `${method} ${status} ${route}`;
    const known = counts.get(key);
    if (known !== undefined) return known;
    const answered = requests.labels({ method, route, status });
    const took = seconds.labels({ method, route });
    const series = {
      count(duration: number): void {
        answered.inc();
        took.observe(duration);
      },
    };
    counts.set(key, series);
    return series;
  }
  return function logAccess(ctx: Context, next: Next) {
    ctx.res.once('close', () => {
      const { exchange } = ctx.state;
      for (const act of exchange.atEnd) act();
      const ms = clock.monotonic() - exchange.started;
      const method = knownMethods.has(ctx.method) ? ctx.method : 'OTHER';
      const route = exchange.route?.endpoint.path ?? (ctx.path.startsWith('/assets/') ? '/assets/*' : 'none');
      const { statusCode } = ctx.res;
      seriesOf(method, route, `${Math.floor(statusCode / 100)}xx`).count(ms / 1000);
      const line = {
        requestId: exchange.id,
        method,
        path: ctx.path.slice(0, 500),
        route,
        status: statusCode,
        ms: Math.round(ms * 10) / 10,
        account: exchange.account?.username ?? null,
        remote: exchange.remoteAddress,
        complete: ctx.res.writableFinished,
        ...(exchange.forwarder !== undefined && { via: exchange.forwarder.node }),
        ...(exchange.answeredBy !== undefined && { answeredBy: exchange.answeredBy }),
      };
      const isRoutine = route === '/assets/*' || (route === '/health' && statusCode < 300 && exchange.account === null);
      const level = isRoutine ? 'debug' : 'info';
      log[level](line, 'request');
    });
    return next(ctx);
  };
}

const knownMethods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
