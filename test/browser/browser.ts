import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core';
import { atEnd, type Ending } from '../support/ending.js';
import { findPeer } from '../support/peers.js';
import { adminPassword } from '../support/server-process.js';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Debian's Chromium; closed when the test ends. */
export async function launchBrowser(test: Ending): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: findPeer('chromium') ?? 'chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update'],
  });
  atEnd(test, () => browser.close());
  return browser;
}

/** What a page did that it should not have done. */
export interface Misdeeds {
  /** Errors and warnings of the console, broken policies among them, and exceptions. */
  readonly complaints: string[];
  /** Requests to other hosts, and dialogs. */
  readonly escapes: string[];
}

export interface VisitOptions {
  readonly username?: string;
  readonly javaScriptEnabled?: boolean;
  /** A page with unsaved changes is left all the same. */
  readonly leavesDrafts?: boolean;
  readonly colorScheme?: 'light' | 'dark';
  readonly width?: number;
}

/** A browser profile that is signed in, as `admin` unless told otherwise, and takes notes. */
export async function visit(
  browser: Browser,
  base: string,
  options: VisitOptions = {},
): Promise<{ readonly context: BrowserContext; readonly page: Page; readonly misdeeds: Misdeeds }> {
  const { username = 'admin', javaScriptEnabled = true, colorScheme = 'light', width = 1280, leavesDrafts } = options;
  const context = await browser.newContext({
    baseURL: base,
    extraHTTPHeaders: { Authorization: `Basic ${Buffer.from(`${username}:${adminPassword}`).toString('base64')}` },
    javaScriptEnabled,
    colorScheme,
    viewport: { width, height: 900 },
  });
  const misdeeds: Misdeeds = { complaints: [], escapes: [] };
  context.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(`${base}/`) && !/^(data|about|blob):/.test(url)) misdeeds.escapes.push(url);
  });
  context.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) misdeeds.complaints.push(message.text());
  });
  context.on('weberror', (error) => misdeeds.complaints.push(String(error.error())));
  context.on('dialog', (dialog) => {
    if (leavesDrafts === true && dialog.type() === 'beforeunload') {
      void dialog.accept();
      return;
    }
    misdeeds.escapes.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return { context, page: await context.newPage(), misdeeds };
}

const everything = `{
  runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  rules: { 'target-size': { enabled: true }, 'label-content-name-mismatch': { enabled: true } },
}`;
/** What depends on the width of the window, and what on the theme. */
const layout = `{ runOnly: ['color-contrast', 'target-size', 'scrollable-region-focusable'], rules: { 'target-size': { enabled: true } } }`;
const contrast = `{ runOnly: ['color-contrast'] }`;
const choices = { everything, layout, contrast } as const;

/**
 * What axe finds against WCAG 2.2 AA and its own best practices, or a part of it; one line for each element. It leaves
 * frames out: those of messages are sandboxed, so that no script runs in them.
 */
export async function accessibilityFaults(page: Page, what: keyof typeof choices): Promise<readonly string[]> {
  if (await page.evaluate<boolean>(`typeof axe === 'undefined'`)) await page.evaluate(axe);
  const options = choices[what];
  return page.evaluate<string[]>(`axe
    .run(document, { iframes: false, resultTypes: ['violations'], ...${options} })
    .then(({ violations }) => violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ html, target, failureSummary }) => id + ': ' + help + ' – ' + target + ' – ' + html + ' – ' + failureSummary)))`);
}

/** How far the page is wider than the window, in CSS pixels (WCAG 1.4.10). */
export function overflow(page: Page): Promise<number> {
  return page.evaluate<number>('document.documentElement.scrollWidth - document.documentElement.clientWidth');
}
