import { randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Account, Method } from './endpoint.js';
import { type Context, wantsFragment } from './exchange.js';
import type { Navigation, ShownLink } from './navigation.js';
import type { Views } from './views.js';
import { withParameter } from './referer.js';

/** The variable `page` of every view. */
interface PageModel {
  readonly title: string;
  readonly nav: readonly ShownLink[];
  readonly account: Account | null;
  /** True when the account may call it, by the access rules in force: `page.may('POST', '/client/queue')`. */
  readonly may: (method: Method, path: string) => boolean;
  readonly requestId: string;
  readonly path: string;
  /** Path and query without cursor, page, format and notice. */
  readonly listPath: string;
  readonly notice: string | null;
  readonly version: string;
  readonly hostname: string;
}

export interface PagesInput {
  readonly views: Views;
  readonly notices: Notices;
  readonly navigation: Pick<Navigation, 'show'>;
  /** Undefined for what is not mounted. */
  readonly may: (account: Account | null, method: Method, path: string) => boolean | undefined;
  /** Paths of the pages below an address, the shortest first. */
  readonly below: (path: string) => readonly string[];
  readonly version: string;
  readonly hostname: string;
}

/** Renders views inside the layout, or as a fragment for htmx. */
export class Pages {
  readonly #input: PagesInput;

  constructor(input: PagesInput) {
    this.#input = input;
  }

  render(ctx: Context, template: string, title: string, model: object): string {
    const { views } = this.#input;
    const layout = wantsFragment(ctx) ? 'fragment.njk' : 'layout.njk';
    return views.render(template, { ...model, layout, page: this.model(ctx, title) });
  }

  /** Whether the account may see the page of that path. */
  may(ctx: Context, path: string): boolean {
    return this.#input.may(ctx.state.exchange.account, 'GET', path) ?? false;
  }

  /**
   * The page below an address that is in the navigation bar, else the one with the shortest address, among those that
   * the account may see.
   */
  below(ctx: Context, path: string): string | undefined {
    const linked = this.model(ctx, '').nav.map(({ href }) => href);
    const pages = [...linked.filter((href) => href.startsWith(`${path}/`)), ...this.#input.below(path)];
    return pages.find((page) => this.may(ctx, page));
  }

  /** The template that the plugin means by that name. */
  resolve(plugin: string, view: string): string {
    return this.#input.views.resolve(plugin, view);
  }

  /** A single element, without a page around it. */
  renderPart(template: string, model: object): string {
    return this.#input.views.render(template, model);
  }

  model(ctx: Context, title: string): PageModel {
    const { notices, navigation, may, version, hostname } = this.#input;
    const { account, id } = ctx.state.exchange;
    const key = typeof ctx.query['notice'] === 'string' ? ctx.query['notice'] : undefined;
    return {
      title,
      nav: navigation.show(ctx.path, account, (href) => may(account, 'GET', href)),
      account,
      may: (method, path) => may(account, method, path) ?? false,
      requestId: id,
      path: ctx.path,
      listPath: listPath(ctx),
      notice: notices.take(key, account?.username),
      version,
      hostname,
    };
  }
}

export function listPath(ctx: Context): string {
  return ['cursor', 'page', 'format', 'notice'].reduce((path, name) => withParameter(path, name, undefined), ctx.url);
}

/**
 * Sentences that a form passes to the page it is redirected to. The URL contains only a random key, so that a link can
 * neither inject a sentence nor show one to another user.
 */
export class Notices {
  readonly #kept = new LRUCache<string, { readonly text: string; readonly username: string | undefined }>({
    max: 1000,
    ttl: 120_000,
  });

  keep(text: string, username: string | undefined): string {
    const key = randomBytes(9).toString('base64url');
    this.#kept.set(key, { text, username });
    return key;
  }

  take(key: string | undefined, username: string | undefined): string | null {
    const kept = key === undefined ? undefined : this.#kept.get(key);
    return kept?.username === username ? (kept?.text ?? null) : null;
  }
}
