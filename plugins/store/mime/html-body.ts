import sanitize from 'sanitize-html';
import { cutDeepHtml } from './html-depth.js';
import { allowedAttributes, allowedStyles, allowedTags } from './html-rules.js';

export interface HtmlOptions {
  /** Pictures on other servers are left in. */
  readonly remote: boolean;
  /** A `data:` URI for the picture of that Content-ID, or undefined. Without it `cid:` references are kept as they are. */
  readonly picture?: ((cid: string) => string | undefined) | undefined;
}

export interface SafeHtml {
  readonly html: string;
  readonly remoteRemoved: boolean;
}

/** Characters of HTML that are looked at; sanitising takes 0.3 ms for each thousand. */
export const maxHtmlLength = 512 * 1024;

/** Tables in tables in tables of newsletters come to about a hundred. */
const maxOpenElements = 500;

/**
 * What is left of a message's HTML: text, tables, pictures and harmless styles. No scripts, forms, frames, style sheets,
 * and nothing that a browser would fetch unless `remote`. Links open elsewhere and tell nobody where they came from.
 */
export function sanitiseHtml(html: string, options: HtmlOptions): SafeHtml {
  let remoteRemoved = false;
  const safe = sanitize(cutDeepHtml(html.slice(0, maxHtmlLength), maxOpenElements), {
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
  return { html: safe, remoteRemoved };
}

/** Only absolute addresses: a relative one would lead into our own pages. */
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

/** The body as a document of its own: quirks like in a mail reader, a readable default, and nothing of our pages. */
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
