import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { sanitiseHtml } from '../../../plugins/store/mime/html.js';
import { payloads } from './xss-payloads.js';

const safe = (html: string) => sanitiseHtml(html, { remote: false });

/** What must not stand in any safe document, in whatever way it got there. */
function assertHarmless(html: string, from: string): void {
  for (const [tag] of html.matchAll(/<[^>]*>/g)) {
    assert.doesNotMatch(
      tag,
      /^<\/?(?:script|style|iframe|frame|object|embed|form|input|button|base|meta|link|svg|math|video|audio|template)\b/i,
      from,
    );
    const bare = tag.replace(/="[^"]*"/g, '');
    assert.doesNotMatch(
      bare,
      /\s(?:on\w+|srcdoc|srcset|background|formaction|action|data-[\w-]*|hx-[\w-]*|id|class|name)\b/i,
      from,
    );
    for (const [, name, value = ''] of tag.matchAll(/\s([\w-]+)="([^"]*)"/g)) {
      if (name === 'href') assert.match(value, /^(?:https?:\/\/|mailto:|tel:)/i, from);
      if (name === 'src') assert.match(value, /^(?:data:image\/(?:png|jpe?g|gif|webp|bmp);base64,|cid:)/i, from);
      if (name === 'style') assert.doesNotMatch(value, /url|expression|import|image|\\|@/i, from);
    }
  }
}

suite('the HTML of a message', () => {
  test('of more than 60 attacks nothing is left that runs, submits, fetches or leads into our pages', () => {
    assert.ok(payloads.length >= 60);
    for (const payload of payloads) {
      assertHarmless(safe(payload).html, payload);
      assertHarmless(safe(`<div>${payload}</div>`).html, payload);
      assertHarmless(safe(`<p title="${payload}">x</p>`).html, payload);
    }
  });

  test('pieces of attacks in any order leave nothing either, and cleaning twice changes nothing', () => {
    const piece = fc.constantFrom(
      '<',
      '>',
      '"',
      "'",
      '/',
      '<a href=',
      'javascript:',
      '<img src=',
      'x onerror=',
      '<svg',
      '<style>',
      '</style>',
      '<!--',
      '-->',
      '<math>',
      '<script>',
      '</script>',
      '<p style="',
      'background:url(',
      ')',
      'data:',
      '&#106;',
      '\0',
      '<title>',
      '=',
      ' ',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 25 }), (pieces) => {
        const once = safe(pieces.join('')).html;
        assertHarmless(once, pieces.join(''));
        assert.equal(safe(once).html, once);
      }),
      { examples: [[['<a href=', '<math>', '<math>', '<a href=', '<script>']]] },
    );
  });

  test('layout, text and harmless styles stay', () => {
    const html =
      '<table width="100%"><tr><td style="color:#f00;padding:4px" bgcolor="#eee"><b>Hi</b></td></tr></table>';
    assert.equal(safe(html).html, html);
  });

  test('links open in a new tab, send no referrer, and are absolute', () => {
    assert.equal(
      safe('<a href="https://example.org/?a=1&amp;b=2" onclick="x()">x</a>').html,
      '<a href="https://example.org/?a=1&amp;b=2" target="_blank" rel="noopener noreferrer nofollow">x</a>',
    );
    for (const href of ['/logs', '../users', '//evil.example', '#top', '?x', 'javascript:alert(1)', ' vbscript:x']) {
      assert.equal(safe(`<a href="${href}">x</a>`).html, '<a>x</a>', href);
    }
  });

  test('remote pictures are left out until requested, and the page says so', () => {
    const html = '<img src="http://t.example/p.gif" alt="P"><p style="background:url(http://t.example/b.gif)">x</p>';
    assert.deepEqual(safe(html), { html: '<img alt="P" /><p>x</p>', remoteRemoved: true });
    const remote = sanitiseHtml(html, { remote: true });
    assert.deepEqual(remote, { html: '<img alt="P" src="http://t.example/p.gif" /><p>x</p>', remoteRemoved: false });
  });

  test('pictures of the message itself are put in, unknown ones are left out', () => {
    const picture = (cid: string) => (cid === 'a b' ? 'data:image/png;base64,AAAA' : undefined);
    const { html } = sanitiseHtml('<img src="cid:a%20b"><img src="cid:other">', { remote: false, picture });
    assert.equal(html, '<img alt="" src="data:image/png;base64,AAAA" /><img alt="" />');
  });

  test('5 MB of nested elements end in less', () => {
    const { html } = safe('<div>'.repeat(1_000_000));
    assert.ok(html.length < 10_000);
  });
});
