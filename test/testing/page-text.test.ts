import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pageText } from '../kit/page-text.js';

test('a page is read as a person reads it', () => {
  const html = `<!doctype html><html><head><style>p { color: red }</style><script>if (a < b) c();</script></head>
    <body><!-- <p>no</p> --><h1 title="a &gt; b">Words</h1><ul><li>a &amp; b</li><li>&lt;i&gt;</li></ul>
    <svg><text>icon</text></svg><p>It&#39;s&nbsp;&quot;so&#96;&quot; &euro; &#8364; &#9999999;</p></body></html>`;
  assert.equal(pageText(html), `Words a & b <i> It's "so\`" &euro; € \ufffd`);
  assert.equal(pageText(''), '');
  assert.equal(pageText('&amp;lt;'), '&lt;');
});
