import type { HealthReport } from '../../core/host/health.js';
import type { UpstreamShelf } from './upstream-shelf.js';

/** Degraded while a server is passed over: mail for it waits at its senders, or goes to the next host. */
export function upstreamHealth(shelf: UpstreamShelf, word: 'rule' | 'route'): HealthReport {
  const broken = shelf.broken();
  if (broken.length === 0) return { status: 'up' };
  const named = broken.slice(0, 5).map(({ upstream, host, port, state, why, retryAfter }) => {
    const then = state === 'open' ? `tried again in ${retryAfter} s` : 'tried again with the next mail';
    return `${host}:${port} of ${word} ${upstream} (${why ?? 'no answer'}; ${then})`;
  });
  const more = broken.length > 5 ? ` and ${broken.length - 5} more` : '';
  return { status: 'degraded', why: `Servers that do not answer: ${named.join(', ')}${more}.` };
}

const tlsWords = {
  never: 'without TLS',
  opportunistic: 'with TLS when it is offered',
  require: 'with TLS or not at all',
  implicit: 'with TLS from the first byte',
} as const;

/** What would be done with a recipient of that rule or route. */
export function explainUpstream(name: string, shelf: UpstreamShelf, word: 'rule' | 'route'): readonly string[] {
  const upstream = shelf.get(name);
  if (upstream === undefined) return [`There is no ${word} ${name} any more.`];
  const { protocol, tls } = upstream.settings;
  return upstream.states().map(({ host, port, state }, index) => {
    const place = index === 0 ? 'It is handed to' : 'Else to';
    const now = state === 'open' ? ', which is passed over now' : '';
    return `${place} ${host} port ${port} by ${protocol.toUpperCase()}, ${tlsWords[tls.mode]}${now}, while the client waits.`;
  });
}
