import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { launchBrowser, visit } from './browser.js';

const suite = suiteEnding();

interface History {
  readonly charts: readonly { readonly series: readonly object[] }[];
}

/** Half an hour in which every value is `value` times its place. */
function history(model: History, value: number): object {
  const start = Math.floor(Date.now() / 10_000) * 10_000 - 1_800_000;
  const places = Array.from({ length: 180 }, (_, place) => place);
  return {
    ...model,
    times: places.map((place) => new Date(start + place * 10_000).toISOString()),
    charts: model.charts.map((chart) => ({
      ...chart,
      series: chart.series.map((series) => ({ ...series, values: places.map((place) => place * value) })),
    })),
  };
}

describe('the charts', { skip: skipWithout('chromium') }, () => {
  let server: InProcessServer;
  let browser: Browser;

  before(async () => {
    server = await startInProcess(suite);
    browser = await launchBrowser(suite);
  });

  /** Answers what the charts ask for; the number of answers so far. */
  async function feed(page: Page, values: readonly number[]): Promise<() => number> {
    const model = (await server.admin.json('/metrics/history')) as History;
    let answers = 0;
    await page.route('**/metrics/history?*', async (route) => {
      const value = values[Math.min(answers, values.length - 1)] ?? 1;
      answers += 1;
      await route.fulfill({ json: history(model, value), headers: { date: new Date().toUTCString() } });
    });
    return () => answers;
  }

  test('have a cursor that tells time and value, a zoom, and a way back', async () => {
    const { context, page, misdeeds } = await visit(browser, server.base);
    await feed(page, [1]);
    await page.goto('/metrics?period=1h');
    const chart = page.locator('[data-chart="flow"]');
    const canvas = chart.locator('.u-over');
    await canvas.hover({ position: { x: 200, y: 40 } });
    await page.waitForFunction('/UTC/.test(document.querySelector("[data-chart=flow] [data-time]").textContent)');
    assert.match((await chart.locator('.legend strong').first().textContent()) ?? '', /^\d+(\.\d+)?\/s$/);
    const time = await page.locator('[data-chart="memory"] [data-time]').textContent();
    assert.match(time ?? '', /UTC/, 'the cursor is at the same time in every chart');

    const box = await canvas.boundingBox();
    assert.ok(box);
    await page.mouse.move(box.x + 100, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + 220, box.y + 40, { steps: 5 });
    await page.mouse.up();
    const whole = chart.getByRole('button', { name: 'Whole period of Messages' });
    await whole.waitFor();
    await page.locator('[data-chart="memory"]').getByRole('button', { name: 'Whole period' }).waitFor();
    await whole.click();
    await whole.waitFor({ state: 'hidden' });
    assert.deepEqual(misdeeds, { complaints: [], escapes: [] }, 'the policy allows how they are drawn');
    await context.close();
  });

  test('show a single value', async () => {
    const { context, page } = await visit(browser, server.base);
    const model = (await server.admin.json('/metrics/history')) as History;
    const now = Date.now();
    const times = [20, 10, 0].map((ago) => new Date(now - ago * 1000).toISOString());
    const withValues = (values: readonly (number | null)[]): object => ({
      ...model,
      times,
      charts: model.charts.map((chart) => ({ ...chart, series: chart.series.map((one) => ({ ...one, values })) })),
    });
    let values: readonly (number | null)[] = [null, 0.5, null];
    await page.route('**/metrics/history?*', (route) =>
      route.fulfill({ json: withValues(values), headers: { date: new Date().toUTCString() } }),
    );
    /** Pixels of the colour of the first line. */
    const coloured = async (): Promise<number> => {
      await page.goto('/metrics?period=15m');
      await page.locator('[data-chart="loop"] .u-over').waitFor();
      return page.evaluate<number>(`(() => {
        const canvas = document.querySelector('[data-chart="loop"] canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        const wanted = getComputedStyle(document.querySelector('.swatch')).backgroundColor.match(/\\d+/g).map(Number);
        let count = 0;
        for (let i = 0; i < data.length; i += 4)
          if (data[i + 3] > 200 && wanted.every((value, part) => Math.abs(data[i + part] - value) < 40)) count += 1;
        return count;
      })()`);
    };
    assert.ok((await coloured()) > 0);
    values = [null, null, null];
    assert.equal(await coloured(), 0);
    await context.close();
  });

  test('take new values when the page asks for them', async () => {
    const { context, page } = await visit(browser, server.base);
    const answers = await feed(page, [1, 1000]);
    await page.clock.install();
    await page.goto('/metrics?period=1h');
    await page.locator('[data-chart="flow"] .u-over').waitFor();
    const picture = 'document.querySelector("[data-chart=flow] canvas").toDataURL()';
    const drawn = await page.evaluate<string>(picture);
    const asked = page.waitForResponse('**/metrics/history?*');
    await page.clock.runFor(11_000);
    await asked;
    assert.ok(answers() >= 2);
    await page.waitForFunction(`${picture} !== '${drawn}'`);
    await context.close();
  });

  test('are pictures without JavaScript', async () => {
    const { context, page } = await visit(browser, server.base, { javaScriptEnabled: false });
    await page.goto('/metrics');
    assert.ok(await page.locator('[data-chart="flow"] svg').isVisible());
    assert.equal(await page.locator('[data-chart="flow"] [data-plot]').isVisible(), false);
    await context.close();
  });
});
