import sanitize from 'sanitize-html';

interface HtmlOptions {
  /** Keeps images on other servers. */
  readonly remote: boolean;
  /**
   * A `data:` URI for the image of that Content-ID, or undefined. Without it, `cid:` references are kept as they are.
   */
  readonly picture?: ((cid: string) => string | undefined) | undefined;
}

interface SafeHtml {
  readonly html: string;
  readonly remoteRemoved: boolean;
}

/** Maximum characters of HTML; sanitising takes 0.3 ms per thousand. */
export const maxHtmlLength = 512 * 1024;

/** Nested tables of newsletters reach about a hundred. */
const maxOpenElements = 500;

/**
 * Sanitises HTML to text, tables, images and harmless styles. No scripts, forms, frames, style sheets, and nothing that
 * a browser would fetch unless `remote`. Links open in a new window without a referrer.
 */
export function sanitiseHtml(html: string, options: HtmlOptions): SafeHtml {
  let remoteRemoved = false;
  const clean = (text: string): string =>
    sanitize(text, {
      allowedTags,
      allowedAttributes,
      allowedStyles,
      allowedSchemes: ['http', 'https', 'mailto', 'tel'],
      allowedSchemesByTag: { img: ['data', 'cid', 'http', 'https'] },
      allowProtocolRelative: false,
      disallowedTagsMode: 'discard',
      nonTextTags: [
        'script',
        'style',
        'textarea',
        'option',
        'noscript',
        'title',
        'template',
        'xmp',
        'noembed',
        'noframes',
      ],
      nestingLimit: 250,
      enforceHtmlBoundary: false,
      parseStyleAttributes: true,
      transformTags: {
        a: (_tag, attributes) => ({ tagName: 'a', attribs: link(attributes) }),
        img: (_tag, attributes) => {
          const src = source(attributes['src'] ?? '', options);
          if (src === undefined && isRemote(attributes['src'] ?? '')) remoteRemoved = true;
          return { tagName: 'img', attribs: picture(attributes, src) };
        },
      },
    });
  const safe = clean(cutDeepHtml(html.slice(0, maxHtmlLength), maxOpenElements));
  return { html: foreign.test(html) ? clean(safe) : safe, remoteRemoved };
}

/** In these, elements nest by rules that do not hold for what is left of them: it is read once more. */
const foreign = /<(?:math|svg)/i;

/** Absolute URLs only: a relative one would point to pages of this server. */
function link(attributes: sanitize.Attributes): sanitize.Attributes {
  const href = (attributes['href'] ?? '').trim();
  const title = attributes['title'];
  const kept = title === undefined ? {} : { title };
  if (!/^(?:https?:\/\/|mailto:|tel:)/i.test(href)) return kept;
  return { ...kept, href, target: '_blank', rel: 'noopener noreferrer nofollow' };
}

function picture(attributes: sanitize.Attributes, src: string | undefined): sanitize.Attributes {
  const { src: _src, srcset: _srcset, ...others } = attributes;
  return src === undefined ? { alt: '', ...others } : { alt: '', ...others, src };
}

function isRemote(src: string): boolean {
  return /^\s*(?:https?:)?\/\//i.test(src);
}

const inlinePicture = /^data:image\/(?:png|jpe?g|gif|webp|bmp);base64,[a-z0-9+/=\s]*$/i;

function source(written: string, { remote, picture }: HtmlOptions): string | undefined {
  const src = written.trim();
  if (/^cid:/i.test(src)) {
    if (picture === undefined) return src;
    return picture(decodedCid(src.slice(4)));
  }
  if (inlinePicture.test(src)) return src;
  return remote && /^https?:\/\//i.test(src) ? src : undefined;
}

/** RFC 2392 §2: the Content-ID is URL-encoded. */
function decodedCid(cid: string): string {
  try {
    return decodeURIComponent(cid);
  } catch {
    return cid;
  }
}

/** The body as a document: quirks mode as in mail clients, readable defaults, and no style of the pages. */
export function htmlDocument(body: string): string {
  return [
    '<!doctype html><html><head><meta charset="utf-8"><meta name="referrer" content="no-referrer">',
    '<meta name="viewport" content="width=device-width"><title>Message</title><style>',
    'html{color-scheme:light;background:#fff;color:#1c1f24;font:15px/1.5 system-ui,sans-serif;overflow-wrap:break-word}',
    'body{margin:12px}img{max-width:100%;height:auto}table{max-width:100%}pre{white-space:pre-wrap}',
    'blockquote{margin:0 0 0 2px;padding-left:10px;border-left:2px solid #c5cad3}',
    `</style></head><body>${body}</body></html>`,
  ].join('');
}

/** Void elements. */
const empty = new Set(
  'area base basefont bgsound br col command embed frame hr image img input keygen link meta param source track wbr'.split(
    ' ',
  ),
);
/** Elements whose end tag is often omitted, and that the next one of the same name ends. */
const endsBefore: Readonly<Record<string, readonly string[]>> = {
  p: ['p'],
  li: ['li'],
  dt: ['dt', 'dd'],
  dd: ['dt', 'dd'],
  td: ['td', 'th'],
  th: ['td', 'th'],
  tr: ['td', 'th', 'tr'],
  option: ['option'],
};

/**
 * Truncates the HTML where more than `limit` elements are open. The sanitiser takes time for each open element at each
 * tag: some hundred kilobytes of `<b>` would take twenty seconds.
 */
function cutDeepHtml(html: string, limit: number): string {
  const open: string[] = [];
  for (const match of html.matchAll(/<(\/?)([a-z][^\s/>]{0,30})/gi)) {
    const name = (match[2] ?? '').toLowerCase();
    if (match[1] === '/') {
      const at = open.lastIndexOf(name);
      if (at >= 0) open.length = at;
    } else if (!empty.has(name)) {
      const ended = Object.hasOwn(endsBefore, name) ? (endsBefore[name] ?? []) : [];
      while (ended.includes(open.at(-1) ?? '')) open.pop();
      if (open.length >= limit) return html.slice(0, match.index);
      open.push(name);
    }
  }
  return html;
}

/** Allowed HTML: layout and text. Nothing that runs, submits, embeds, or loads style. */
const allowedTags = words(`
  address article aside blockquote center dd div dl dt figcaption figure footer h1 h2 h3 h4 h5 h6 header hgroup
  hr li main nav ol p pre section ul a abbr acronym b bdi bdo big br cite code del dfn em font i img ins kbd
  mark q s samp small span strike strong sub sup time tt u var wbr caption col colgroup table tbody td tfoot th
  thead tr
`);

const anywhere = ['style', 'dir', 'lang', 'title', 'align', 'valign', 'bgcolor', 'width', 'height'];

const allowedAttributes: Record<string, string[]> = {
  '*': anywhere,
  a: ['href', 'target', 'rel'],
  img: ['src', 'alt', 'border', 'hspace', 'vspace'],
  font: ['color', 'face', 'size'],
  table: ['border', 'cellpadding', 'cellspacing', 'summary'],
  td: ['colspan', 'rowspan', 'nowrap'],
  th: ['colspan', 'rowspan', 'nowrap', 'scope'],
  col: ['span'],
  colgroup: ['span'],
  ol: ['start', 'type'],
  ul: ['type'],
  li: ['value', 'type'],
  hr: ['size', 'color', 'noshade'],
};

/** No functions except colours: `url()`, `image-set()`, `expression()` and future ones fetch or run. */
const harmless = [/^(?:[^()\\]|\b(?:rgb|rgba|hsl|hsla)\([\d\s.,%/deg]*\))*$/i];

const properties = words(`
  color background-color background opacity border-collapse border-spacing border-radius font font-family
  font-size font-style font-variant font-weight letter-spacing line-height text-align text-decoration
  text-indent text-transform vertical-align white-space word-break word-spacing word-wrap overflow-wrap
  direction list-style-type table-layout box-sizing width height max-width max-height min-width min-height
  display float clear margin margin-top margin-right margin-bottom margin-left padding padding-top padding-right
  padding-bottom padding-left border border-top border-right border-bottom border-left border-color border-style
  border-width outline
`);

const allowedStyles: Record<string, Record<string, RegExp[]>> = {
  '*': Object.fromEntries(properties.map((property) => [property, harmless])),
};

function words(text: string): string[] {
  return text.trim().split(/\s+/);
}
