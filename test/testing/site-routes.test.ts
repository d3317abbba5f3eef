import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import type { Plugin } from '../../core/plugin.js';
import { drive } from '../kit/index.js';
import { startInProcess } from '../support/in-process-server.js';
import { SmtpClient } from '../support/smtp-client.js';

/** Takes the mail of a list, here and elsewhere, into a target of its own; nothing is said about the order. */
const lists = (options: string) => `
import { defineEndpoint, definePlugin, next, route } from 'postern/plugin';
export const lists = definePlugin({
  name: 'lists',
  setup({ http, smtp }) {
    const taken = [];
    http.mount([defineEndpoint({
      method: 'GET', path: '/taken', summary: 'Taken', group: 'Site', access: 'read', handle: () => ({ taken }),
    })]);
    smtp.on('rcptTo', ${options}, ({ address }) =>
      address.local === 'list' ? route({ target: 'lists', destination: address.domain }) : next());
    smtp.deliverTo('lists', {
      async start(_transaction, recipients) {
        return {
          async body() {},
          async commit() {
            taken.push(...recipients.map(({ address }) => address.address));
            return recipients.map((recipient) => ({ recipient, outcome: 'delivered' }));
          },
          async abort() {},
        };
      },
    });
  },
});
`;
const recipients = ['list@elsewhere.example', 'list@example.org', 'postmaster@example.org', 'ben@elsewhere.example'];

suite('a route of a site plugin', () => {
  for (const options of [`{ order: 'route' }`, `{ order: 'route', before: 'users' }`]) {
    test(`comes before the queue for a client that may relay, live and in the kit: ${options}`, async (t) => {
      const config = `{ hostname: 'mx.example.org', domains: ['example.org'], sitePlugins: ['./lists.mjs'],
        smtp: { listeners: [{ mode: 'mx', port: 0 }], relayNetworks: ['127.0.0.1'] } }`;
      const server = await startInProcess(t, config, {}, (folder) =>
        writeFile(join(folder, 'lists.mjs'), lists(options)),
      );
      const client = await SmtpClient.greeted({ port: server.portOf('mx') });
      await client.command('MAIL FROM:<anna@example.com>');
      for (const address of recipients) assert.equal((await client.command(`RCPT TO:<${address}>`)).code, 250);
      assert.equal((await client.data('Subject: x\r\n\r\nHello\r\n')).code, 250);
      client.close();
      assert.deepEqual(await server.admin.json('/taken'), { taken: recipients.slice(0, 2) });

      const module = (await import(pathToFileURL(join(server.folder, 'lists.mjs')).href)) as { readonly lists: Plugin };
      const site = await drive(module.lists, { test: t });
      assert.equal((await site.data({ user: 'anna@example.org', from: 'anna@example.org', to: recipients })).code, 250);
      assert.deepEqual((await site.call('GET', '/taken')).body, { taken: recipients.slice(0, 2) });
      assert.deepEqual(
        site.delivered.map(({ target, to }) => [target, to]),
        [
          ['mailbox', [recipients[2]]],
          ['relay', [recipients[3]]],
        ],
      );
    });
  }
});
