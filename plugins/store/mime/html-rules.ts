/** What mail may use of HTML: layout and text. Nothing that runs, submits, embeds, or takes its style from elsewhere. */
export const allowedTags = words(`
  address article aside blockquote center dd div dl dt figcaption figure footer h1 h2 h3 h4 h5 h6 header hgroup
  hr li main nav ol p pre section ul a abbr acronym b bdi bdo big br cite code del dfn em font i img ins kbd
  mark q s samp small span strike strong sub sup time tt u var wbr caption col colgroup table tbody td tfoot th
  thead tr
`);

const anywhere = ['style', 'dir', 'lang', 'title', 'align', 'valign', 'bgcolor', 'width', 'height'];

export const allowedAttributes: Record<string, string[]> = {
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

/** No functions but colours: `url()`, `image-set()`, `expression()` and what will be invented next fetch or run. */
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

export const allowedStyles: Record<string, Record<string, RegExp[]>> = {
  '*': Object.fromEntries(properties.map((property) => [property, harmless])),
};

function words(text: string): string[] {
  return text.trim().split(/\s+/);
}
