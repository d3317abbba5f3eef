import { directory } from '../../../core/contracts/directory.js';
import { configuration } from '../../../core/contracts/server.js';
import { hostRoutes } from '../../../core/dns/mail-routes.js';
import { definePlugin } from '../../../core/plugin.js';
import { problem } from '../../../core/problem.js';
import { LiveTransactions } from '../live-transaction.js';
import { upstreamSettings, type UpstreamSettings } from '../settings.js';
import { UpstreamCounts } from '../upstream-counts.js';
import { explainUpstream, upstreamHealth, UpstreamRegistry, upstreamTarget } from '../upstream-target.js';
import { asMailbox, lmtpHook, lmtpTarget, LmtpRoutes } from './lmtp-hook.js';
import { LmtpOptions, type LmtpSettings, type RouteSettings } from './options.js';
import { lmtpEndpoints } from './routes.js';

/** Maximum configurable timeout of RCPT. */
const maxAnswerMs = 310_000;

/** Delivers domains and users to an LMTP server. */
export const lmtp = definePlugin({
  name: 'lmtp',
  options: LmtpOptions,
  needs: { configuration },
  uses: { directory },
  setup({ smtp, http, metrics, health, clock, log, onClose }, { options, configuration, directory }) {
    const upstreams = new UpstreamRegistry({ finder: hostRoutes(clock), helloName: configuration.hostname, clock });
    const live = new LiveTransactions();
    let table = new LmtpRoutes({ routes: [] });
    const use = (settings: LmtpSettings): void => {
      if (directory === undefined) refuseDirectory(settings);
      table = new LmtpRoutes(settings);
      upstreams.use(new Map(table.routes.map(({ name, settings: route }) => [name, serversOf(route)])));
    };
    use(options);
    onClose(() => upstreams.close());
    const counts = new UpstreamCounts(metrics, upstreams, {
      prefix: 'lmtp',
      label: 'route',
      names: () => table.routes.map(({ name }) => name),
    });

    smtp.on(
      'rcptTo',
      { order: 'route', before: ['client-queue', 'users'], timeLimitMs: maxAnswerMs },
      lmtpHook({ table: () => table, directory, upstreams, live, counts, clock }),
    );
    smtp.deliverTo(
      lmtpTarget,
      upstreamTarget({
        upstream: (route) => upstreams.get(route),
        live: (transaction, route) => live.find(transaction, route),
        known: asMailbox,
        handed: (handed) => counts.handed(handed),
        log,
        explain: ({ destination }) => explainUpstream(destination, upstreams, 'route'),
      }),
    );
    smtp.watch('ended', ({ transaction }) => live.end(transaction));
    health.check('lmtp', () => ({ ...upstreamHealth(upstreams, 'route'), page: '/lmtp' }));
    http.navigate({ title: 'LMTP', href: '/lmtp', order: 28, role: 'read', group: 'Delivery' });
    http.mount(lmtpEndpoints({ table: () => table, upstreams, counts }));
    return {
      reconfigure(changed: LmtpSettings) {
        use(changed);
        log.info({ routes: table.routes.length }, 'the routes of lmtp are in force');
      },
    };
  },
});

const serversOf = ({ tlsVerify: verify, ...route }: RouteSettings): UpstreamSettings =>
  upstreamSettings({ ...route, verify }, { protocol: 'lmtp' });

function refuseDirectory({ routes }: LmtpSettings): void {
  if (routes.every(({ verify }) => verify !== 'directory')) return;
  throw problem('invalid', 'plugins.lmtp.routes: verify "directory" needs a plugin that knows users, such as users.');
}
