import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { adminPassword, freeListeners } from '../support/server-process.js';

const suite = suiteEnding();
const routes = { dead: { mx: ['127.0.0.1'], port: 1, domains: ['dead.example'] } };
const config = `{ plugins: { 'client-queue': ${JSON.stringify({ routes })} }, smtp: { listeners: ${freeListeners} } }`;
const mailbox = '/store/localhost/postmaster';

interface Refused {
  readonly page: string;
  readonly action: string;
  readonly fields: Readonly<Record<string, string>>;
  /** Names of the fields that have a message. */
  readonly wrong: readonly string[];
  readonly multipart?: boolean;
}

const forms: Readonly<Record<string, Refused>> = {
  'add a user': {
    page: '/users',
    action: '/users',
    fields: { username: 'a b', aliases: '@', quota: 'much' },
    wrong: ['username', 'aliases', 'quota'],
  },
  'make a folder': {
    page: mailbox,
    action: `${mailbox}/folders`,
    fields: { name: 'a.b', parent: '' },
    wrong: ['name'],
  },
  'rename a folder': {
    page: mailbox,
    action: `${mailbox}/folders/Mine`,
    fields: { _method: 'PATCH', name: 'a.b' },
    wrong: ['name'],
  },
  'copy a folder': {
    page: mailbox,
    action: `${mailbox}/folders/Mine/copy`,
    fields: { newName: 'x..y', destinationParent: '' },
    wrong: ['newName'],
  },
  'explain a mail': {
    page: '/pipeline',
    action: '/pipeline/explain',
    fields: { ip: '1.2.3', ehlo: '-', mode: 'submission', mail: 'nobody', rcpt: 'bob@example.net a@b@c' },
    wrong: ['ip', 'ehlo', 'mail', 'rcpt'],
  },
  'send a case': {
    page: '/client/send',
    action: '/client/send',
    fields: { case: '{ envelopes: [{ mail: 5 }], odd: true }' },
    wrong: ['case'],
    multipart: true,
  },
  'queue a case that cannot be read': {
    page: '/client/send?mode=queue',
    action: '/client/queue',
    fields: { case: '{ envelopes: [' },
    wrong: ['case'],
    multipart: true,
  },
  'send a message': {
    page: '/client/send',
    action: '/client/send',
    fields: { mail: 'nobody', rcpt: '', eml: 'Subject: x\r\n\r\nx\r\n' },
    wrong: ['mail', 'rcpt'],
    multipart: true,
  },
  'limit a destination': {
    page: '/client/destinations/example.net',
    action: '/client/destinations/example.net',
    fields: { _method: 'PUT', maxConnections: 'all', ratePerMinute: '-1' },
    wrong: ['maxConnections', 'ratePerMinute'],
  },
};

function bodyOf({ fields, multipart }: Refused): FormData | URLSearchParams {
  if (multipart !== true) return new URLSearchParams(fields);
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (name === 'eml') body.append(name, new Blob([value], { type: 'message/rfc822' }), 'x.eml');
    else body.append(name, value);
  }
  return body;
}

/** The value in the page, of whichever kind of field. */
function valueIn(html: string, name: string): string | undefined {
  const [, input] =
    new RegExp(`<input (?=[^>]* name="${name}")[^>]* value="([^"]*)"[^>]*aria-invalid`).exec(html) ?? [];
  const [, text] = new RegExp(`<textarea (?=[^>]* name="${name}")[^>]*>\\n([^<]*)</textarea>`).exec(html) ?? [];
  return (input ?? text)?.replaceAll('&quot;', '"');
}

describe('a form that is refused', () => {
  let server: InProcessServer;

  before(async () => {
    server = await startInProcess(suite, config);
    await server.admin.json(`${mailbox}/folders`, { json: { name: 'Mine' } }, 201);
    await server.admin.json('/client/destinations/example.net', { method: 'PUT', json: { maxConnections: 3 } });
  });

  const send = async (refused: Refused) => {
    const answer = await fetch(`${server.base}${refused.action}`, {
      method: 'POST',
      redirect: 'manual',
      body: bodyOf(refused),
      headers: {
        Accept: 'text/html',
        Authorization: `Basic ${Buffer.from(`admin:${adminPassword}`).toString('base64')}`,
        Referer: `${server.base}${refused.page}`,
      },
    });
    return { status: answer.status, html: await answer.text() };
  };

  for (const [name, refused] of Object.entries(forms)) {
    it(`comes back on its page: ${name}`, async () => {
      const { status, html } = await send(refused);
      assert.equal(status, 422, html);
      const wrong = [...html.matchAll(/<(?:input|textarea|select)[^>]* name="(\w+)"[^>]* aria-invalid="true"/g)];
      assert.deepEqual(
        wrong.map(([, field]) => field),
        refused.wrong,
        html,
      );
      assert.equal(html.match(/<p class="error"/g)?.length, refused.wrong.length);
      for (const field of refused.wrong) {
        if (refused.fields[field] !== '') assert.equal(valueIn(html, field), refused.fields[field], field);
      }
    });
  }

  it('comes back from the page of an answer as well', async () => {
    const question = forms['explain a mail'] ?? assert.fail();
    const { status, html } = await send({ ...question, page: question.action });
    assert.equal(status, 422);
    assert.match(html, /id="field-ip-error"/);
  });

  it('is the list, when nothing is ticked; all of the list is all, ticks or none', async () => {
    const path = `${mailbox}/folders/INBOX`;
    const { id } = (await server.admin.json(
      `${path}/messages?unread=true`,
      { body: 'Subject: x\r\n\r\nx\r\n', headers: { 'Content-Type': 'message/rfc822' } },
      201,
    )) as { id: string };
    const envelopes = [{ mail: 'ann@dead.example', rcpt: ['bob@dead.example'], text: 'Hi' }];
    await server.admin.json('/client/destinations/route:dead', { method: 'PUT', json: { suspendFor: 3600 } });
    const { uid } = (await server.admin.json('/client/queue', { json: { envelopes } }, 202)) as { uid: string };
    for (const [page, action, button, sentence, tick] of [
      [`${path}?q=x`, `${path}/selection`, { action: 'read' }, 'Select at least one message.', { messageIds: id }],
      [
        '/client/queue/list?q=bob',
        '/client/queue/selection',
        { operation: 'hold' },
        'Select at least one entry.',
        { uids: uid },
      ],
    ] as const) {
      const nothing = await send({ page, action, fields: { ...button, filter: '' }, wrong: [] });
      assert.equal(nothing.status, 422);
      assert.ok(nothing.html.includes(`role="alert" tabindex="-1" autofocus><p>${sentence}</p>`), nothing.html);
      assert.match(nothing.html, /name="q" value="(?:x|bob)"/);
      const all = await send({ page, action, fields: { ...button, ...tick, filter: 'q=x' }, wrong: [] });
      assert.ok([200, 303].includes(all.status), all.html);
      const script = await server.admin.request(action, { form: { ...button, ...tick, filter: 'q=x' } });
      assert.equal(script.status, 422);
    }
  });

  it('is refused to a script as well when it does not say that it means what it destroys', async () => {
    await server.admin.json(`${mailbox}/folders`, { json: { name: 'Old' } }, 201);
    const envelopes = [{ mail: 'ann@dead.example', rcpt: ['bob@dead.example'], text: 'Hi' }];
    const { uid } = (await server.admin.json('/client/queue', { json: { envelopes } }, 202)) as { uid: string };
    for (const [path, form] of [
      ['/client/queue/delete', { uids: uid }],
      [`${mailbox}/folders/Old`, { _method: 'DELETE' }],
    ] as const) {
      const asked = await server.admin.request(path, { form });
      assert.equal(asked.status, 422, path);
      assert.match(asked.text, /"pointer":"\/confirm"/);
      const done = await server.admin.request(path, { form: { ...form, confirm: 'yes' } });
      assert.equal(done.status, 200, done.text);
    }
  });
});
