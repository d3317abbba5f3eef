import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { defineEndpoint, definePlugin, problem, respond, z, type Plugin } from '../../core/plugin.js';
import { drive } from '../kit/index.js';
import { temporaryFolder, type Ending } from '../support/temporary-folder.js';

/** A list of words with a page, a form and a call. */
async function wordList(t: Ending): Promise<Plugin> {
  const views = await temporaryFolder(t);
  await mkdir(views, { recursive: true });
  await writeFile(
    join(views, 'words.njk'),
    `{% extends "layout.njk" %}{% block content %}<h1>Words</h1><ul>{% for word in words %}<li>{{ word }}</li>{% endfor %}</ul>{% endblock %}`,
  );
  return definePlugin({
    name: 'words',
    views,
    setup({ http }) {
      const words: string[] = ['a & b'];
      http.navigate({ title: 'Words', href: '/words', order: 90, role: 'read' });
      http.mount([
        defineEndpoint({
          method: 'GET',
          path: '/words',
          summary: 'Words',
          group: 'Site',
          access: 'read',
          view: 'words.njk',
          handle: () => ({ words }),
        }),
        defineEndpoint({
          method: 'POST',
          path: '/words',
          summary: 'Add a word',
          group: 'Site',
          access: 'operate',
          body: { kind: 'fields', schema: z.strictObject({ word: z.string().min(2) }) },
          handle: ({ body, request }) => {
            if (words.includes(body.word)) throw problem('conflict', 'The word is there already.');
            words.push(body.word);
            return respond({ status: 201, model: { words, by: request.account?.username }, location: '/words' });
          },
        }),
      ]);
    },
  });
}

test('a page is rendered in our layout, for those who may see it', async (t) => {
  const site = await drive(await wordList(t), { test: t });
  const page = await site.page('/words', { role: 'read' });
  assert.equal(page.status, 200);
  assert.match(page.html, /<li>a &amp; b<\/li>/);
  assert.match(page.text, /Words a & b/);
  assert.match(page.headers['content-type'] ?? '', /^text\/html/);
  assert.match(page.html, /href="\/words"/, 'the link in the navigation');
  const unknown = await site.page('/words', { role: null });
  assert.deepEqual([unknown.status, unknown.headers['location']], [303, '/sign-in?next=%2Fwords']);
  assert.equal((await site.page('/nothing')).status, 404);
});

test('a form and a call change the same things, and are refused alike', async (t) => {
  const site = await drive(await wordList(t), { test: t });
  const form = await site.call('POST', '/words', { form: { word: 'form' } });
  assert.equal(form.status, 303);
  assert.match(form.headers['location'] ?? '', /^\/words/);
  const json = await site.call('POST', '/words', { json: { word: 'json' }, role: 'operate' });
  assert.deepEqual([json.status, json.body], [201, { words: ['a & b', 'form', 'json'], by: 'operate' }]);

  const invalid = await site.call('POST', '/words', { json: { word: '' } });
  assert.equal(invalid.status, 422);
  assert.equal(invalid.headers['content-type'], 'application/problem+json');
  assert.match(JSON.stringify(invalid.body), /"pointer":"\/word"/);
  assert.equal((await site.call('POST', '/words', { json: { word: 'json' } })).status, 409);
  assert.equal((await site.call('POST', '/words', { json: { word: 'more' }, role: 'read' })).status, 403);
  const foreign = { 'sec-fetch-site': 'cross-site' };
  assert.equal((await site.call('POST', '/words', { form: { word: 'more' }, headers: foreign })).status, 403);
  assert.equal(
    (await site.call('POST', '/words', { body: 'word=x', headers: { 'content-type': 'text/plain' } })).status,
    415,
  );
  assert.equal((await site.call('DELETE', '/words')).status, 405);
});

test('files, bytes and streams are asked for as well', async (t) => {
  const files = definePlugin({
    name: 'files',
    setup({ http }) {
      http.mount([
        defineEndpoint({
          method: 'POST',
          path: '/files',
          summary: 'Take files',
          group: 'Site',
          access: 'operate',
          body: { kind: 'raw', types: ['multipart/form-data'] },
          handle: async ({ request: { files, fields } }) => ({
            note: fields['note'],
            files: await Promise.all(files.map(async (file) => [file.filename, await text(file.open())])),
          }),
        }),
        defineEndpoint({
          method: 'GET',
          path: '/files/one',
          summary: 'A file',
          group: 'Site',
          access: 'read',
          produces: ['bytes'],
          handle: () =>
            respond({ stream: { source: Readable.from([bytes]), contentType: 'application/octet-stream' } }),
        }),
        defineEndpoint({
          method: 'GET',
          path: '/files/events',
          summary: 'Events',
          group: 'Site',
          access: 'read',
          produces: ['events'],
          handle: () => {
            const source = new Readable({ read() {} });
            source.push('data: one\n\n');
            return respond({ stream: { source, contentType: 'text/event-stream' } });
          },
        }),
      ]);
    },
  });
  const bytes = Buffer.from([0, 255, 13, 10, 128]);
  const site = await drive(files, { test: t });
  const body = new FormData();
  body.set('note', 'two');
  body.append('a', new Blob(['one']), 'one.txt');
  body.append('a', new Blob(['two']), 'two.txt');
  const taken = await site.call('POST', '/files', { body });
  assert.deepEqual(taken.body, {
    note: 'two',
    files: [
      ['one.txt', 'one'],
      ['two.txt', 'two'],
    ],
  });
  assert.deepEqual((await site.call('GET', '/files/one', { accept: '*/*' })).bytes, bytes);
  const events = await site.call('GET', '/files/events', { accept: 'text/event-stream' });
  assert.deepEqual([events.status, events.text], [200, '']);
});
