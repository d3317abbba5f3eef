import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { fillTables } from '../plugins/cluster/cluster-fixture.js';
import { joined, settingsOf } from '../plugins/cluster/cluster-site.js';
import { suiteEnding } from '../support/ending.js';
import { type InProcessServer, startInProcess } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { Postgres } from '../support/postgres.js';
import { freeListeners } from '../support/server-process.js';
import { until, untilTrue } from '../support/until.js';
import { accessibilityFaults, launchBrowser, overflow, visit } from './browser.js';

const screenshots = process.env['POSTERN_SCREENSHOTS'];

describe('the page of a cluster in a browser', { skip: skipWithout('postgres') || skipWithout('chromium') }, () => {
  const ending = suiteEnding();
  let postgres: Postgres;
  let server: InProcessServer;
  let browser: Browser;
  before(async () => {
    postgres = await Postgres.start(ending, { durable: true, fill: fillTables });
    await postgres.database('page');
    const database = { hosts: [postgres.folder], name: 'page', user: 'postgres', tls: 'off' };
    const cluster = JSON.stringify({ node: 'mx1', sessionSeconds: 5, database });
    server = await startInProcess(
      ending,
      `{ smtp: { listeners: ${freeListeners} }, plugins: { config: { sync: { source: 'postgres:', server: 'mx1' } }, cluster: ${cluster} } }`,
    );
    await joined(ending, settingsOf(database, { node: 'mx2', sessionSeconds: 5 }), '0.0.9');
    const dead = await joined(
      ending,
      settingsOf(database, { node: 'mx3-in-another-hall.example.org', sessionSeconds: 5 }),
    );
    await dead.leave();
    browser = await launchBrowser(ending);
  });

  const looked = async (name: string, path = '/cluster'): Promise<void> => {
    for (const width of [1280, 320])
      for (const colorScheme of ['light', 'dark'] as const) {
        const { context, page, misdeeds } = await visit(browser, server.base, { width, colorScheme });
        await page.goto(path);
        const faults = await accessibilityFaults(
          page,
          width === 1280 && colorScheme === 'light' ? 'everything' : 'layout',
        );
        assert.deepEqual(faults, [], `${name} at ${width}, ${colorScheme}`);
        assert.deepEqual(misdeeds, { complaints: [], escapes: [] });
        const wide = await overflow(page);
        assert.equal(wide, 0, `${name} is wider than ${width}`);
        const file = `cluster-${name}-${width}-${colorScheme}.png`;
        if (screenshots !== undefined) await page.screenshot({ path: join(screenshots, file), fullPage: true });
        await context.close();
      }
  };

  test('shows three nodes, one of them dead, and is drawn again where the focus stays', async () => {
    await looked('nodes');
    const { context, page } = await visit(browser, server.base);
    await page.goto('/cluster');
    await page.getByText(/\d+ other tables/).click();
    const button = page.getByRole('button', { name: 'Drain mx2' });
    await button.focus();
    await page.waitForResponse((response) => response.url().endsWith('/cluster') && response.ok());
    await untilTrue('it is drawn again', async () => (await page.locator('.htmx-request').count()) === 0);
    assert.equal(await page.evaluate('document.activeElement.id'), 'act-mx2');
    assert.equal(await page.getByRole('table', { name: 'Other tables' }).isVisible(), true);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'End drain of mx2' }).waitFor();
    await page.getByRole('button', { name: 'Forget mx3-in-another-hall.example.org' }).click();
    await untilTrue(
      'the dead node is gone',
      async () => (await page.locator('#nodes').getByText('mx3-in').count()) === 0,
    );
    await context.close();
  });

  test('shows sets of the configuration, who could not apply one, and where a change was made', async () => {
    const files = ['base.json5', 'servers-in-another-hall/mx3-in-another-hall.example.org.json5'].map((name) => {
      return {
        name,
        text: '{\n  smtp: { limits: { recipients: 50 } },\n  // a long line of a comment that is wider than a telephone\n}',
      };
    });
    await server.admin.json('/cluster/configuration', { json: { files } }, 201);
    await server.admin.json('/cluster/configuration/use', { json: { set: 1 } });
    const why = 'base.json5:2:3: smtp.limits.recipients: it must be a whole number, and this is a long sentence.';
    await postgres.psql(
      `insert into postern.config_node (node, number, move, state, why, session) values ('mx2', null, 1, 'refused', '${why}', 'x');
       update postern.config_current set stopped_by = 'mx2', stopped_why = '${why}';
       insert into postern.audit values ('mx2.another-hall.example.org', 1, 1, 'anna', '192.0.2.1', 'POST', '/x', '', true,
         '{"at":"2026-01-01T00:00:00.000Z","by":"anna","from":"192.0.2.1","requestId":"x","method":"POST","route":"/x","params":{},"status":200}')`,
      'page',
    );
    await looked('configuration');
    await looked('sets', '/cluster/configuration');
    await looked('set', '/cluster/configuration/1');
    await looked('audit', '/audit');
    await looked('sync', '/config/sync/status');
    const { context, page } = await visit(browser, server.base);
    await page.goto('/cluster');
    await page.getByRole('link', { name: 'All sets' }).click();
    await page.getByRole('button', { name: 'Use set 1' }).click();
    await page.getByText('The nodes apply set 1, one after the other.').waitFor();
    await page.goto('/audit');
    await page.getByText('mx2.another-hall.example.org').waitFor();
    await context.close();
  });

  test('says that the database is away', async () => {
    await postgres.stop('immediate');
    await until(
      'the fault is known',
      async () => ((await server.admin.json('/cluster')) as { fault: string | null }).fault ?? undefined,
    );
    await looked('away');
    await looked('audit-away', '/audit');
    await postgres.start();
  });
});
