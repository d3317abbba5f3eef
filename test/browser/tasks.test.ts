import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { once } from 'node:events';
import { before, describe, test } from 'node:test';
import type { Browser, BrowserContext, Locator, Page } from 'playwright-core';
import { suiteEnding } from '../support/ending.js';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { freeListeners } from '../support/server-process.js';
import { until } from '../support/until.js';
import { launchBrowser, visit } from './browser.js';

const suite = suiteEnding();
const routes = {
  dead: { mx: ['127.0.0.1'], port: 1, domains: ['dead.example'] },
  other: { mx: ['127.0.0.1'], port: 1, domains: ['other.example'] },
};
const config = `{ smtp: { listeners: ${freeListeners} }, plugins: { 'client-queue': ${JSON.stringify({ routes })} } }`;
/** Apart from typing. */
const maxClicks = 3;

/** Somebody in front of the overview, whose clicks are counted. */
class Operator {
  readonly page: Page;
  readonly main: Locator;
  readonly #context: BrowserContext;
  #clicks = 0;

  private constructor(context: BrowserContext, page: Page) {
    this.#context = context;
    this.page = page;
    this.main = page.getByRole('main');
  }

  static async at(browser: Browser, base: string): Promise<Operator> {
    const { context, page } = await visit(browser, base);
    await page.goto('/');
    return new Operator(context, page);
  }

  async click(place: Locator): Promise<void> {
    this.#clicks += 1;
    await place.click();
  }

  menu(name: string): Promise<void> {
    const menu = this.page.getByRole('navigation', { name: 'Main', exact: true });
    return this.click(menu.getByRole('link', { name, exact: true }));
  }

  link(name: string | RegExp): Promise<void> {
    return this.click(this.main.getByRole('link', { name }).first());
  }

  button(name: string | RegExp): Promise<void> {
    return this.click(this.main.getByRole('button', { name }).first());
  }

  /** Types where the cursor may be put by a key. */
  async find(text: string): Promise<void> {
    await this.page.keyboard.press('/');
    await this.page.keyboard.type(text);
    await this.page.keyboard.press('Enter');
  }

  async sees(text: string | RegExp): Promise<void> {
    await this.main.getByText(text).first().waitFor();
  }

  async done(): Promise<void> {
    assert.ok(this.#clicks <= maxClicks, `${this.#clicks} clicks`);
    await this.#context.close();
  }
}

describe('the tasks of an operator take at most three clicks', { skip: skipWithout('chromium') }, () => {
  let server: InProcessServer;
  let browser: Browser;

  async function queue(mail: string, ...rcpt: string[]): Promise<string> {
    const envelopes = [{ mail, rcpt, subject: 'Out', text: 'x' }];
    const { uid } = (await server.admin.json('/client/queue', { json: { envelopes } }, 202)) as { uid: string };
    await until('the first attempt', async () => ((await entry(uid)).state === 'deferred' ? true : undefined));
    return uid;
  }
  const entry = async (uid: string) =>
    (await server.admin.json(`/client/queue/${uid}`)) as {
      readonly state: string;
      readonly history: readonly unknown[];
      readonly recipients: readonly { readonly address: string; readonly state: string }[];
    };

  before(async () => {
    server = await startInProcess(suite, config);
    browser = await launchBrowser(suite);
    await server.admin.json('/users', { json: { username: 'anna@localhost', password: 'four words are enough' } }, 201);
  });

  function task(title: string, work: (operator: Operator) => Promise<void>): void {
    void test(title, async () => {
      const operator = await Operator.at(browser, server.base);
      await work(operator);
      await operator.done();
    });
  }

  task('why a message was not delivered', async (operator) => {
    await queue('ann@localhost', 'why@dead.example');
    await operator.find('why@dead.example');
    await operator.link('Out');
    await operator.sees(/451 4\.4\.1/);
    await operator.sees(/Connection refused/);
  });

  task('retry everything for a destination', async (operator) => {
    const uid = await queue('ann@localhost', 'bob@dead.example');
    const { history } = await entry(uid);
    await operator.menu('Destinations');
    await operator.button('Retry now route:dead');
    await operator.sees(/will be retried now/);
    await operator.button('Retry now');
    await until('another attempt', async () => ((await entry(uid)).history.length > history.length ? true : undefined));
  });

  task('hold the mail of a sender', async (operator) => {
    const uid = await queue('spammer@localhost', 'bob@other.example');
    await operator.menu('Queue');
    await operator.main.getByLabel('Search').first().fill('spammer@localhost');
    await operator.page.keyboard.press('Enter');
    await operator.page.waitForURL(/spammer/);
    await operator.click(operator.page.getByRole('checkbox', { name: 'All on this page' }));
    await operator.button('Hold');
    await operator.sees(/held/);
    assert.equal((await entry(uid)).state, 'held');
  });

  task('bounce one recipient of a message', async (operator) => {
    const uid = await queue('ann@localhost', 'left@other.example', 'gone@other.example');
    await operator.find('gone@other.example');
    await operator.link('Out');
    await operator.button('Bounce … gone@other.example');
    await operator.sees(/1 recipient in 1 message will be bounced/);
    await operator.button('Bounce');
    await operator.sees(/bounced/);
    const states = (await entry(uid)).recipients.map(({ address, state }) => [address, state]);
    assert.deepEqual(states, [
      ['left@other.example', 'deferred'],
      ['gone@other.example', 'bounced'],
    ]);
  });

  task('find a message by its subject, and open it', async (operator) => {
    await deliver(server.portOf('mx'), lines('From: bob@example.org', 'Subject: The bridge creaks', '', 'It does.'));
    await operator.find('bridge');
    await operator.link(/The bridge creaks/);
    await operator.sees('It does.');
  });

  task('disable a user', async (operator) => {
    await operator.menu('Users');
    await operator.link('anna@localhost');
    await operator.button('Disable');
    await operator.main.getByRole('button', { name: 'Enable' }).waitFor();
    const { disabled } = (await server.admin.json('/users/anna@localhost')) as { disabled: boolean };
    assert.equal(disabled, true);
  });

  task('set a password', async (operator) => {
    await operator.menu('Users');
    await operator.link('anna@localhost');
    await operator.main.getByLabel('New password').fill('several other words here');
    await operator.button('Set password');
    await operator.page
      .getByText(/password/i)
      .first()
      .waitFor();
    await operator.page.waitForURL(/users\/anna/);
  });

  task('who changed something, and who signed in', async (operator) => {
    await server.admin.json('/users/anna@localhost', { method: 'PATCH', json: { aliases: ['changed'] } });
    await operator.menu('Audit');
    await operator.main.getByRole('link', { name: 'anna@localhost' }).first().waitFor();
    await operator.link('Sign-ins');
    await operator.sees('admin');
  });

  task('the reason of a refused recipient', async (operator) => {
    const socket = connect(server.portOf('mx'), '127.0.0.1');
    await once(socket, 'data');
    socket.end('EHLO client.example\r\nMAIL FROM:<bob@example.org>\r\nRCPT TO:<nobody@localhost>\r\nQUIT\r\n');
    socket.resume();
    await once(socket, 'close');
    await operator.find('nobody@localhost');
    await operator.link(/nobody@localhost/);
    await operator.sees(/550/);
  });

  task('the effective value of a setting, and where it comes from', async (operator) => {
    await operator.menu('Configuration');
    await operator.main.getByLabel('Filter keys').fill('smtp.listeners');
    await operator.sees(/^1 of|\d+ of \d+ keys/);
    await operator.sees(/postern\.json5/);
  });

  task('reload the configuration', async (operator) => {
    await operator.menu('Configuration');
    await operator.button('Reload …');
    await operator.button('Reload');
    await operator.sees(/Last reload .* by admin/);
  });

  task('whether certificates and the disk are in order', async (operator) => {
    await operator.sees('Disk free');
    await operator.menu('Health');
    await operator.sees(/disk/);
    await operator.sees(/listener/i);
  });
});
