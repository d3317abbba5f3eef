import type { HealthReport } from '../../core/health.js';
import type { UpstreamShelf } from '../../core/smtp/upstream/upstream-shelf.js';

/** Degraded while a server is passed over: mail for it waits at its senders, or goes to the next host. */
export function proxyHealth(shelf: UpstreamShelf): HealthReport {
  const broken = shelf.broken();
  if (broken.length === 0) return { status: 'up' };
  const named = broken.slice(0, 5).map(({ upstream, host, port, state, why, retryAfter }) => {
    const then = state === 'open' ? `tried again in ${retryAfter} s` : 'tried again with the next mail';
    return `${host}:${port} of rule ${upstream} (${why ?? 'no answer'}; ${then})`;
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

/** What would be done with a recipient of that rule. */
export function sentencesOf(rule: string, shelf: UpstreamShelf): readonly string[] {
  const upstream = shelf.get(rule);
  if (upstream === undefined) return [`There is no rule ${rule} any more.`];
  const { protocol, tls } = upstream.settings;
  return upstream.states().map(({ host, port, state }, index) => {
    const place = index === 0 ? 'It is handed to' : 'Else to';
    const now = state === 'open' ? ', which is passed over now' : '';
    return `${place} ${host} port ${port} by ${protocol.toUpperCase()}, ${tlsWords[tls.mode]}${now}, while the client waits.`;
  });
}
