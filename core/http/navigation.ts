import { startError } from '../problem.js';
import { holds } from './access.js';
import type { Account, Role } from './endpoint.js';

export interface NavigationLink {
  readonly title: string;
  readonly href: string;
  /** Order among the links of its side. */
  readonly order: number;
  readonly role: Role;
}

/** Origin of the pages; the server's own come first. */
export type Side = 'server' | 'site';

export interface ShownLink {
  readonly title: string;
  readonly href: string;
  readonly current: boolean;
}

const roles: readonly unknown[] = ['read', 'operate', 'admin'] satisfies readonly Role[];

/** The links in the bar of every page: those of the server, then those of the site, each by `order`. */
export class Navigation {
  readonly #links: Readonly<Record<Side, Set<NavigationLink>>> = { server: new Set(), site: new Set() };

  /** Returns the undo. @throws start error for an invalid link */
  add(plugin: string, link: NavigationLink, side: Side): () => void {
    const complaint = complaintOf(link);
    if (complaint !== undefined) throw startError(`Plugin ${plugin}, link ${link.href}: ${complaint}`);
    this.#links[side].add(link);
    return () => void this.#links[side].delete(link);
  }

  /**
   * Links that the account may follow from that path.
   *
   * @param mayOpen result of the access rules; undefined where no page is mounted, so that the role of the link decides
   */
  show(
    path: string,
    account: Account | null,
    mayOpen: (href: string) => boolean | undefined = () => undefined,
  ): readonly ShownLink[] {
    const links = [...inOrder(this.#links.server), ...inOrder(this.#links.site)].filter(
      ({ href, role }) => mayOpen(href) ?? holds(account, role),
    );
    const current = links
      .filter(({ href }) => path === href || path.startsWith(href.endsWith('/') ? href : `${href}/`))
      .toSorted((a, b) => b.href.length - a.href.length)[0];
    return links.map(({ title, href }) => ({
      title,
      href,
      current: href === current?.href && (href !== '/' || path === '/'),
    }));
  }
}

const inOrder = (links: ReadonlySet<NavigationLink>): readonly NavigationLink[] =>
  [...links].toSorted((a, b) => a.order - b.order || (a.title < b.title ? -1 : 1));

/** Site plugins are JavaScript, so this checks at run time what the compiler checks for others. */
function complaintOf({
  title,
  href,
  order,
  role,
}: { readonly [K in keyof NavigationLink]: unknown }): string | undefined {
  if (typeof title !== 'string' || title === '') return 'title must be a text.';
  if (typeof href !== 'string' || !href.startsWith('/')) return 'href must be a path that begins with "/".';
  if (!Number.isFinite(order)) return 'order must be a number.';
  if (!roles.includes(role)) return `there is no role ${JSON.stringify(role)}; roles: ${roles.join(', ')}.`;
  return undefined;
}
