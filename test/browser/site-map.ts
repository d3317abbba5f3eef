import type { HttpClient } from '../support/http-client.js';

const mostPages = 120;
/** Pages of one kind: the views of a message are six, the messages are as many as they are. */
const mostOfAKind = 6;
const uid = /^[0-9a-z]{20}$/;
const collections = new Set([
  'store',
  'folders',
  'messages',
  'drafts',
  'users',
  'accounts',
  'heapdumps',
  'destinations',
  'quarantine',
  'jobs',
  'trace',
]);

/** Paths of all pages that can be reached by links from the landing page, some of each kind. */
export async function pagePaths(client: HttpClient): Promise<readonly string[]> {
  const waiting = ['/'];
  const seen = new Set(waiting);
  const kinds = new Map<string, number>();
  const pages: string[] = [];
  /** What the audit log names may be gone. */
  const past = new Set<string>();
  for (let path = waiting.shift(); path !== undefined && pages.length < mostPages; path = waiting.shift()) {
    const { status, headers, text } = await client.request(path, { accept: 'text/html,*/*;q=0.8' });
    const location = headers.get('location');
    if (status === 303 && location !== null && !seen.has(location)) {
      seen.add(location);
      waiting.push(location);
    }
    if (status === 303) continue;
    if (headers.get('content-type')?.startsWith('text/html') !== true || isFramed(headers)) continue;
    if (status === 404 && past.has(path)) continue;
    if (status !== 200) throw new Error(`a link leads to ${path}, which answers ${status}`);
    const ids = [...text.matchAll(/<[a-z][^>]*?\sid="([^"]*)"/g)].map(([, id]) => id);
    const twice = ids.find((id, at) => ids.indexOf(id) !== at);
    if (twice !== undefined) throw new Error(`${path} has the id ${twice} twice`);
    pages.push(path);
    for (const link of linksOf(text, path)) {
      const kind = kindOf(link);
      const known = kinds.get(kind) ?? 0;
      if (seen.has(link) || known >= mostOfAKind) continue;
      seen.add(link);
      if (path.startsWith('/audit')) past.add(link);
      kinds.set(kind, known + 1);
      waiting.push(link);
    }
  }
  return pages;
}

/** The path without its query and without the names of members. */
export function kindOf(link: string): string {
  const [path = ''] = link.split('?');
  const segments = path.split('/');
  return segments
    .map((segment, index) => {
      const isMember = collections.has(segments[index - 1] ?? '') || segments[index - 2] === 'store';
      return isMember || uid.test(segment) ? '*' : segment;
    })
    .join('/');
}

/** The HTML of a message, a document that is shown in a frame. */
const isFramed = (headers: Headers) => /\bsandbox\b/.test(headers.get('content-security-policy') ?? '');

/** Links to this server, without fragments; not those that ask for remote content. */
function linksOf(html: string, path: string): readonly string[] {
  return [...html.matchAll(/<a\b[^>]*\shref="([^"]*)"(?![^>]*\sdownload)/g)]
    .map(([, href = '']) => new URL(href.replaceAll('&amp;', '&'), `http://here${path}`))
    .filter(({ host, searchParams }) => host === 'here' && !searchParams.has('remote'))
    .map(({ pathname, search }) => `${pathname}${search}`);
}
