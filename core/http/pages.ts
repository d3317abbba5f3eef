import { randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { startError } from '../problem.js';
import { holds } from './access.js';
import type { Method, NoticeAction } from './endpoint.js';
import type { Account, Role } from '../contracts/accounts.js';
import { type Context, hasSession, wantsFragment } from './exchange.js';
import { withParameter } from './referer.js';
import type { Views } from './views.js';

/** The variable `page` of every view. */
interface PageModel {
  readonly title: string;
  readonly nav: readonly ShownLink[];
  readonly account: Account | null;
  /** Signed in with a session, which can be ended. */
  readonly session: boolean;
  /** True when the account may call it, by the access rules in force: `page.may('POST', '/client/queue')`. */
  readonly may: (method: Method, path: string) => boolean;
  /** The same text as long as `may` gives the same results: a key for `{% keep %}`. */
  readonly rights: string;
  readonly requestId: string;
  readonly path: string;
  /** Path and query without cursor, page, format and notice. */
  readonly listPath: string;
  readonly notice: string | null;
  /** A form beside the notice, such as Undo. */
  readonly noticeAction: NoticeAction | null;
  readonly version: string;
  readonly hostname: string;
}

export interface PagesInput {
  readonly views: Views;
  readonly notices: Notices;
  readonly navigation: Pick<Navigation, 'show'>;
  /** Undefined for what is not mounted. */
  readonly may: (account: Account | null, method: Method, path: string) => boolean | undefined;
  readonly rights: (account: Account | null) => string;
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

  render(ctx: Context, template: string, title: string, model: object): string | Buffer {
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
  renderPart(template: string, model: object): string | Buffer {
    return this.#input.views.render(template, model);
  }

  model(ctx: Context, title: string): PageModel {
    const { notices, navigation, may, rights, version, hostname } = this.#input;
    const { account, id } = ctx.state.exchange;
    const key = typeof ctx.query['notice'] === 'string' ? ctx.query['notice'] : undefined;
    const notice = notices.take(key, account?.username);
    return {
      title,
      nav: navigation.show(ctx.path, account, (href) => may(account, 'GET', href), rights(account)),
      account,
      session: hasSession(ctx),
      may: (method, path) => may(account, method, path) ?? false,
      rights: rights(account),
      requestId: id,
      path: ctx.path,
      listPath: listPath(ctx),
      notice: notice?.text ?? null,
      noticeAction: notice?.action ?? null,
      version,
      hostname,
    };
  }
}

export function listPath(ctx: Context): string {
  return ['cursor', 'page', 'format', 'notice'].reduce((path, name) => withParameter(path, name, undefined), ctx.url);
}

interface Notice {
  readonly text: string;
  readonly action?: NoticeAction | undefined;
}

/** Characters of all notices. */
const maxNoticeSize = 8 * 1024 * 1024;

/**
 * Sentences that a form passes to the page it is redirected to. The URL contains only a random key, so that a link can
 * neither inject a sentence nor show one to another user.
 */
export class Notices {
  readonly #kept = new LRUCache<string, Notice & { readonly username: string | undefined }>({
    max: 1000,
    maxSize: maxNoticeSize,
    sizeCalculation: ({ text, action }) => 1 + text.length + JSON.stringify(action?.fields ?? {}).length,
    ttl: 120_000,
  });

  keep(notice: Notice, username: string | undefined): string {
    const key = randomBytes(9).toString('base64url');
    this.#kept.set(key, { ...notice, username });
    return key;
  }

  take(key: string | undefined, username: string | undefined): Notice | null {
    const kept = key === undefined ? undefined : this.#kept.get(key);
    return kept?.username === username ? (kept ?? null) : null;
  }
}

export interface NavigationLink {
  readonly title: string;
  readonly href: string;
  /** Order among the links of its side. */
  readonly order: number;
  readonly role: Role;
  /** Heading of the link; absent: none for pages of the server, `Site` for those of site plugins. */
  readonly group?: NavigationGroup;
  /** Pages below this path belong to the link, too; default `href`. */
  readonly section?: string;
}

/** Headings of the navigation; each comes where its first link has its place. */
const groups = ['Mail', 'Delivery', 'Server', 'Admin'] as const;
export type NavigationGroup = (typeof groups)[number];

/** Origin of the pages; the server's own come first. */
export type Side = 'server' | 'site';

interface ShownLink {
  readonly title: string;
  readonly href: string;
  readonly current: boolean;
  /** Empty for links without a heading. */
  readonly group: string;
}

const roles: readonly unknown[] = ['read', 'operate', 'admin'] satisfies readonly Role[];

/** Rights whose lists of links are kept. */
const maxLists = 20;

/** The links in the bar of every page: those of the server, then those of the site, each by `order`. */
export class Navigation {
  readonly #links: Readonly<Record<Side, Set<NavigationLink>>> = { server: new Set(), site: new Set() };
  /** By the rights of an account: what it may follow, and that list by the address of the current link. */
  readonly #lists = new LRUCache<string, ListOfLinks>({ max: maxLists });

  /** Returns the undo. @throws start error for an invalid link */
  add(plugin: string, link: NavigationLink, side: Side): () => void {
    const complaint = complaintOf(link);
    if (complaint !== undefined) throw startError(`Plugin ${plugin}, link ${link.href}: ${complaint}`);
    this.#links[side].add(link);
    this.#lists.clear();
    return () => {
      this.#links[side].delete(link);
      this.#lists.clear();
    };
  }

  /**
   * Links that the account may follow from that path: the same object for the same rights and the same current link.
   *
   * @param mayOpen result of the access rules; undefined where no page is mounted, so that the role of the link decides
   * @param rights another text for every other result of these rules and roles
   */
  show(
    path: string,
    account: Account | null,
    mayOpen: (href: string) => boolean | undefined = () => undefined,
    rights: string = account?.role ?? '',
  ): readonly ShownLink[] {
    const list = this.#lists.get(rights) ?? this.#list(account, mayOpen);
    this.#lists.set(rights, list);
    const current = list.links
      .filter(
        ({ href, section = href }) =>
          path === href || (href !== '/' && path.startsWith(section.endsWith('/') ? section : `${section}/`)),
      )
      .toSorted((a, b) => (b.section ?? b.href).length - (a.section ?? a.href).length)[0]?.href;
    const shown =
      list.shown.get(current) ??
      list.links.map(({ title, href, group = '' }) => ({ title, href, group, current: href === current }));
    list.shown.set(current, shown);
    return shown;
  }

  #list(account: Account | null, mayOpen: (href: string) => boolean | undefined): ListOfLinks {
    const site = inOrder(this.#links.site).map((link) => ({ ...link, group: link.group ?? 'Site' }));
    const links = [...inOrder(this.#links.server), ...site].filter(
      ({ href, role }) => mayOpen(href) ?? holds(account, role),
    );
    return { links, shown: new Map() };
  }
}

interface ListOfLinks {
  readonly links: readonly (Omit<NavigationLink, 'group'> & { readonly group?: string })[];
  readonly shown: Map<string | undefined, readonly ShownLink[]>;
}

const inOrder = (links: ReadonlySet<NavigationLink>): readonly NavigationLink[] =>
  [...links].toSorted((a, b) => a.order - b.order || (a.title < b.title ? -1 : 1));

/** Site plugins are JavaScript, so this checks at run time what the compiler checks for others. */
function complaintOf({
  title,
  href,
  order,
  role,
  group,
}: { readonly [K in keyof NavigationLink]: unknown }): string | undefined {
  if (typeof title !== 'string' || title === '') return 'title must be a text.';
  if (typeof href !== 'string' || !href.startsWith('/')) return 'href must be a path that begins with "/".';
  if (!Number.isFinite(order)) return 'order must be a number.';
  if (!roles.includes(role)) return `there is no role ${JSON.stringify(role)}; roles: ${roles.join(', ')}.`;
  if (group !== undefined && !groups.some((one) => one === group)) return `group must be one of ${groups.join(', ')}.`;
  return undefined;
}
