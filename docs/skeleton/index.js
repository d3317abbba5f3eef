import { join } from 'node:path';
import { defineEndpoint, definePlugin, next, reject, z } from 'postern/plugin';

/** What the page and its JSON twin show of a sender. */
const Judged = z.object({ at: z.iso.datetime(), sender: z.string(), verdict: z.enum(['passed', 'refused']) });

export const examplePlugin = definePlugin({
  name: 'example-plugin',
  options: z.strictObject({
    refuse: z.array(z.string()).default([]).describe('Addresses that may not send mail to this server.'),
    remember: z.int().min(1).max(1000).default(20).describe('How many of the newest senders the page shows.'),
  }),
  views: join(import.meta.dirname, 'views'),
  assets: join(import.meta.dirname, 'assets'),
  setup({ clock, health, http, metrics, smtp }, { options }) {
    /** @type {z.output<typeof Judged>[]} */
    const senders = [];
    const judged = metrics.counter('example_plugin_senders_total', 'Senders that were judged.', ['verdict']);

    // Runs at each MAIL FROM. A dry run only asks what would happen: it is answered, and not counted.
    smtp.on('mailFrom', { order: 'policy' }, ({ transaction }) => {
      const sender = transaction.reversePath?.address ?? '<>';
      const verdict = options.refuse.includes(sender) ? 'refused' : 'passed';
      if (transaction.session.dryRun !== true) {
        judged.inc({ verdict });
        senders.unshift({ at: new Date(clock.now()).toISOString(), sender, verdict });
        senders.splice(options.remember);
      }
      return verdict === 'refused' ? reject(550, '5.7.1', 'This sender is not welcome here') : next();
    });

    // Stands on /health. When something needs an operator: { status: 'degraded', why: 'The list is a week old.' }
    health.check('example-plugin', () => ({ status: 'up' }));

    http.navigate({ title: 'Example plugin', href: '/example-plugin', order: 90, role: 'read' });
    http.mount([
      defineEndpoint({
        method: 'GET',
        path: '/example-plugin',
        summary: 'The newest senders, and what example-plugin said to them',
        group: 'Site',
        access: 'read',
        answer: z.object({ senders: z.array(Judged) }),
        view: 'page.njk',
        cache: 'no-store',
        handle: () => ({ senders }),
      }),
    ]);
  },
});
