import { lines } from '../support/delivery.js';

/** Where things are loaded from that nobody asked for. */
export const tracker = 'http://tracker.example';

const script = '<script>alert("subject")</script><img src=x onerror=alert("subject")>';

const html = [
  '<html><head>',
  `<link rel="stylesheet" href="${tracker}/style.css"><style>@import url(${tracker}/import.css);`,
  `body { background: url(${tracker}/body.png) } .font { font-family: x } @font-face { font-family: x; src: url(${tracker}/font.woff) }</style>`,
  `<meta http-equiv="refresh" content="0;url=${tracker}/refresh"><base href="${tracker}/">`,
  '<script>alert("script")</script></head>',
  `<body onload="alert('load')" background="${tracker}/background.png">`,
  '<p id="greeting">Good day</p>',
  `<img src="${tracker}/pixel.gif" onerror="alert('img')" alt="pixel">`,
  `<img srcset="${tracker}/set.gif 2x" alt=""><picture><source srcset="${tracker}/picture.gif"></picture>`,
  `<svg onload="alert('svg')"><script>alert("svg")</script><image href="${tracker}/svg.png"/></svg>`,
  `<a href="javascript:alert('href')" id="trap">a link</a> <a href="https://example.org/" target="_top">an honest link</a>`,
  `<form action="${tracker}/form"><input name="password" autofocus onfocus="alert('focus')"><button>Send</button></form>`,
  `<iframe src="${tracker}/frame"></iframe><iframe srcdoc="<script>alert('srcdoc')</script>"></iframe>`,
  `<object data="${tracker}/object"></object><embed src="${tracker}/embed"><video src="${tracker}/video" poster="${tracker}/poster.png"></video>`,
  `<div style="background-image: url(${tracker}/inline.png); position: fixed; inset: 0">covers everything</div>`,
  '<div hx-get="/users" hx-trigger="load" data-hx-get="/users" hx-on:click="alert(1)">htmx</div>',
  `<math><mtext><table><mglyph><style><img src=x onerror="alert('mutation')"></style></mglyph></table></mtext></math>`,
  '<img src="cid:inline@sender.example" alt="inline picture" id="inline">',
  '</body></html>',
].join('\r\n');

const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

/** Tries to run script, to load things from elsewhere and to leave its frame, in every field that a page shows. */
export const hostileMessage = lines(
  `From: "${script.replaceAll('"', '\\"')}" <evil@sender.example>`,
  'To: "</title><script>alert(\'to\')</script>" <postmaster@localhost>',
  `Subject: ${script} "><svg onload=alert('subject')>`,
  `Message-ID: <"><script>alert('id')</script>@sender.example>`,
  `X-Mark: </textarea></pre><script>alert('header')</script>`,
  'MIME-Version: 1.0',
  'Content-Type: multipart/mixed; boundary=outer',
  '',
  '--outer',
  'Content-Type: multipart/related; boundary=inner',
  '',
  '--inner',
  'Content-Type: text/html; charset=utf-8',
  '',
  html,
  '--inner',
  'Content-Type: image/png',
  'Content-Transfer-Encoding: base64',
  'Content-ID: <inline@sender.example>',
  'Content-Disposition: inline; filename=dot.png',
  '',
  pixel,
  '--inner--',
  '--outer',
  `Content-Type: text/html; name="<img src=x onerror=alert('name')>.html"`,
  `Content-Disposition: attachment; filename="<img src=x onerror=alert('filename')>.html"`,
  '',
  "<script>alert('attachment')</script>",
  '--outer',
  'Content-Type: image/svg+xml; name=picture.svg',
  'Content-Disposition: inline; filename=picture.svg',
  '',
  `<svg xmlns="http://www.w3.org/2000/svg"><script>alert('svg part')</script><image href="${tracker}/part.png"/></svg>`,
  '--outer--',
);
