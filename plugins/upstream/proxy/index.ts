import { relayQueue } from '../../../core/contracts/relay-queue.js';
import { configuration } from '../../../core/contracts/server.js';
import { hostRoutes } from '../../../core/dns/mail-routes.js';
import { definePlugin } from '../../../core/plugin.js';
import { LiveTransactions } from '../live-transaction.js';
import { upstreamSettings } from '../settings.js';
import { UpstreamCounts } from '../upstream-counts.js';
import { explainUpstream, upstreamHealth, UpstreamRegistry, upstreamTarget } from '../upstream-target.js';
import { ProxyOptions, type ProxySettings } from './options.js';
import { proxyHook, proxyTarget } from './proxy-hook.js';
import { proxyEndpoints } from './routes.js';
import { RuleBook } from './rule.js';

/** Maximum configurable timeout of RCPT. */
const maxAnswerMs = 310_000;

/** Relays mail to other servers while its client waits, and passes on their replies. */
export const proxy = definePlugin({
  name: 'proxy',
  options: ProxyOptions,
  needs: { configuration },
  uses: { relayQueue },
  setup({ smtp, http, metrics, health, clock, log, onClose }, { options, configuration, relayQueue }) {
    const upstreams = new UpstreamRegistry({ finder: hostRoutes(clock), helloName: configuration.hostname, clock });
    const live = new LiveTransactions();
    let book = new RuleBook({ rules: [] });
    const use = (settings: ProxySettings): void => {
      book = new RuleBook(settings);
      upstreams.use(new Map(book.rules.map(({ name, settings: rule }) => [name, upstreamSettings(rule, rule)])));
      for (const { name } of book.rules.filter((rule) => rule.takesEverything)) {
        log.warn({ rule: name }, 'this proxy rule has no condition: it relays all mail of everybody');
      }
    };
    use(options);
    onClose(() => upstreams.close());
    const counts = new UpstreamCounts(metrics, upstreams, {
      prefix: 'proxy',
      label: 'rule',
      names: () => book.rules.map(({ name }) => name),
    });

    smtp.on(
      'rcptTo',
      { order: 'route', before: ['client-queue', 'lmtp', 'users'], timeLimitMs: maxAnswerMs },
      proxyHook({ book: () => book, upstreams, live, counts, hasQueue: relayQueue !== undefined, clock }),
    );
    smtp.deliverTo(
      proxyTarget,
      upstreamTarget({
        upstream: (rule) => upstreams.get(rule),
        live: (transaction, rule) => live.find(transaction, rule),
        handed: (handed) => counts.handed(handed),
        log,
        explain: ({ destination }) => explainUpstream(destination, upstreams, 'rule'),
      }),
    );
    smtp.watch('ended', ({ transaction }) => live.end(transaction));
    smtp.watch('closed', ({ session }) => upstreams.forget(session));
    health.check('proxy', () => ({ ...upstreamHealth(upstreams, 'rule'), page: '/proxy' }));
    http.navigate({ title: 'Proxy', href: '/proxy', order: 27, role: 'read', group: 'Delivery' });
    http.mount(proxyEndpoints({ book: () => book, upstreams, counts }));
    return {
      reconfigure(changed: ProxySettings) {
        use(changed);
        log.info({ rules: book.rules.length }, 'the rules of proxy are in force');
      },
    };
  },
});
