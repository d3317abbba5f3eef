import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { skipWithout } from '../support/peers.js';
import { adminPassword, freeListeners, ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { launchBrowser, overflow, visit, type Misdeeds, type VisitOptions } from './browser.js';
import { perform, pressesOf, submitPlainly, type Press } from './controls.js';
import { fill } from './filled-server.js';
import { kindOf, pagePaths } from './site-map.js';

const suite = suiteEnding();
/** Pages of one kind: an entry that is held, and one that is not. */
const maxVisits = 3;
const roles = ['read', 'operate', 'admin'] as const;
const plugins = {
  'client-queue': {
    routes: {
      dead: { mx: ['127.0.0.1'], port: 1, domains: ['dead.example', 'gone.example'] },
      busy: { mx: ['127.0.0.1'], port: 1, domains: ['busy.example'] },
    },
  },
  config: { sync: { source: './central', server: 'mail1', intervalSeconds: 86_400, apply: 'manual' } },
  proxy: { rules: [{ name: 'away', rcpt: '@away\\.example$', hosts: ['127.0.0.1:1'] }] },
};
const accounts = roles.map((role) => ({ username: role, password: adminPassword, role }));
const config = `{ http: { accounts: ${JSON.stringify(accounts)} }, smtp: { listeners: ${freeListeners} }, plugins: ${JSON.stringify(plugins)} }`;

/** Answers that the page leads to and that are right all the same. */
const expected: readonly { readonly key: RegExp; readonly status: number; readonly reason: string }[] = [
  { key: /nothing ticked$/, status: 422, reason: 'HTML cannot ask for at least one tick' },
  {
    key: /^Move .*selection post \| (?:as it is|filter=.*)$/,
    status: 422,
    reason: 'the folder is required for this button only',
  },
  { key: /^Sign in \| \/sign-in post/, status: 422, reason: 'the walk knows no password' },
];

const isExpected = (key: string, status: number) => expected.some((one) => one.status === status && one.key.test(key));
/** What a walk with plain forms leaves to the others: options whose form is posted in the same way by a script. */
const isForScripts = ({ key, submits, changes, choice }: Press) =>
  !submits || (changes && choice !== null) || key.startsWith('Take a heap dump');
const brief = (text: string) => text.replace(/\s+/g, ' ').trim().slice(0, 300);

describe('every button of every page', { skip: skipWithout('chromium') }, () => {
  let folder: string;
  let base: string;
  let browser: Browser;
  let admin: HttpClient;
  const pressedBefore = new Set<string>();

  before(async () => {
    folder = await temporaryFolder(suite);
    await mkdir(join(folder, 'central'));
    await writeFile(join(folder, 'central', 'base.json5'), '{ smtp: { limits: { recipients: 50 } } }');
    ({ http: base } = await ServerProcess.start(suite, { folder, config }));
    admin = new HttpClient(base, { username: 'admin', password: adminPassword });
    await fill(folder, admin);
    browser = await launchBrowser(suite);
  });

  async function walk(options: VisitOptions & { readonly username: string }, input: Partial<WalkInput>): Promise<void> {
    const visitor = await visit(browser, base, { ...options, leavesDrafts: true });
    const client = new HttpClient(base, { username: options.username, password: adminPassword });
    const fresh = { client, pressed: new Set<string>(), isPlain: false, fill: () => fill(folder, admin) };
    const one = new Walk(visitor, { ...fresh, ...input });
    await one.everywhere();
    await visitor.context.close();
    assert.deepEqual(one.faults, []);
  }

  for (const username of roles) {
    // What a smaller role may press as well has been pressed with its account.
    test(`with the role ${username}, with JavaScript`, () => walk({ username }, { pressed: pressedBefore }));
  }

  test('with the role admin, as plain forms, on a phone', () =>
    walk({ username: 'admin', width: 320 }, { isPlain: true }));
});

interface WalkInput {
  /** Of the account that is signed in. */
  readonly client: HttpClient;
  /** Keys of what is not pressed again; grows. */
  readonly pressed: Set<string>;
  readonly fill: () => Promise<void>;
  /** Forms are posted without the scripts of the page. Else, the options of a filter are left to such a walk: they are links in effect. */
  readonly isPlain: boolean;
}

/** Visits each page and presses each control once on each kind of page. */
class Walk {
  readonly faults: string[] = [];
  readonly #page: Page;
  readonly #misdeeds: Misdeeds;
  readonly #input: WalkInput;
  #doing = '';
  #press: Press | undefined;
  #refusals: string[] = [];
  #paths: readonly string[] = [];

  constructor({ page, misdeeds }: { readonly page: Page; readonly misdeeds: Misdeeds }, input: WalkInput) {
    this.#page = page;
    page.setDefaultTimeout(20_000);
    this.#misdeeds = misdeeds;
    this.#input = input;
    page.on('response', (response) => {
      const status = response.status();
      if (status >= 400 && !isExpected(this.#press?.key ?? '', status)) {
        this.#refusals.push(`${response.request().method()} ${response.url()} answers ${status}`);
      }
    });
  }

  async everywhere(): Promise<void> {
    const { client, pressed, isPlain } = this.#input;
    const visits = new Map<string, number>();
    this.#paths = await pagePaths(client);
    for (const path of this.#paths) {
      const kind = kindOf(path);
      const visited = visits.get(kind) ?? 0;
      // Earlier presses may have removed what this page shows; another one of its kind is there.
      if (visited === maxVisits || !(await this.#open(path))) continue;
      visits.set(kind, visited + 1);
      const pixels = await overflow(this.#page);
      await this.#note(pixels > 0 ? [`is ${pixels} pixels wider than the window`] : []);
      let isFresh = true;
      for (const press of await pressesOf(this.#page)) {
        const key = `${press.isOfEveryPage ? 'every page' : kind} | ${press.key}`;
        const isLeftOut = isPlain ? isForScripts(press) : press.choice !== null && !press.changes;
        if (isLeftOut || pressed.has(key)) continue;
        pressed.add(key);
        const found = isFresh ? press : await this.#find(path, press);
        this.#doing = key;
        this.#press = found;
        // An earlier press may have taken the control away on every page of the kind.
        if (found !== undefined) await this.#do(found);
        if (press.changes) await this.#input.fill();
        isFresh = isPlain && !press.changes;
      }
    }
  }

  async #do(press: Press): Promise<void> {
    const isRight = (status: number) => status < 400 || isExpected(press.key, status);
    if (this.#input.isPlain) {
      const answer = await submitPlainly(this.#page, press);
      await this.#note(answer === null || isRight(answer.status) ? [] : [`${answer.status} ${brief(answer.said)}`]);
    } else await this.#note(await perform(this.#page, press).catch((error: unknown) => [String(error)]));
  }

  /** False when the page is gone. */
  async #open(path: string): Promise<boolean> {
    this.#press = undefined;
    this.#doing = path;
    const answer = await this.#page.goto(path);
    if (answer?.status() !== 404) return true;
    this.#refusals = [];
    this.#misdeeds.complaints.splice(0);
    return false;
  }

  /** Opens the page anew, or another one of its kind when an earlier press has taken the control away. */
  async #find(path: string, { key }: Press): Promise<Press | undefined> {
    const onPage = async (where: string) =>
      (await this.#open(where)) ? (await pressesOf(this.#page)).find((one) => one.key === key) : undefined;
    const { pathname, search } = new URL(this.#page.url());
    // A plain answer is not shown: the page is older than what it changed.
    const isHere = !this.#input.isPlain && `${pathname}${search}` === path;
    const shown = isHere ? (await pressesOf(this.#page)).find((one) => one.key === key) : undefined;
    const here = shown ?? (await onPage(path));
    if (here !== undefined) return here;
    for (const paths of [() => this.#paths, () => pagePaths(this.#input.client)]) {
      for (const other of (await paths()).filter((one) => one !== path && kindOf(one) === kindOf(path))) {
        const found = await onPage(other);
        if (found !== undefined) return found;
      }
    }
    return undefined;
  }

  async #note(found: readonly string[]): Promise<void> {
    const { complaints, escapes } = this.#misdeeds;
    // The browser's own note of a status that was read already.
    const said = complaints.splice(0).filter((text) => !text.startsWith('Failed to load resource'));
    // A plain answer was judged by its status.
    const refusals = this.#input.isPlain && this.#press ? [] : this.#refusals;
    this.#refusals = [];
    const sentence = refusals.length > 0 ? await this.#page.locator('main').innerText() : '';
    const why = sentence === '' ? [] : [brief(sentence)];
    this.faults.push(
      ...[...found, ...said, ...escapes.splice(0), ...refusals, ...why].map((one) => `${this.#doing}: ${one}`),
    );
  }
}
