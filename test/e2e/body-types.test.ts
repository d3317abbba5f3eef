import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';

const suite = suiteEnding();
const drafts = '/store/localhost/postmaster/drafts';
const sends = ['/client/send', '/client/queue', drafts];

describe('a body whose type does not fit', () => {
  let server: InProcessServer;
  before(async () => {
    server = await startInProcess(suite);
  });

  /** `curl -d` names a form; `fetch` with bytes names nothing. */
  async function refusal(path: string, body: string, type?: string) {
    const headers = type === undefined ? undefined : { 'Content-Type': type };
    const sent = { method: 'POST', body: Buffer.from(body), accept: 'application/json', ...(headers && { headers }) };
    const { status, text } = await server.admin.request(path, sent);
    return { status, detail: (JSON.parse(text) as { detail?: string }).detail ?? '' };
  }

  test('the refusal of JSON without a Content-Type, or with that of a form, names the right one', async () => {
    const form = 'application/x-www-form-urlencoded';
    for (const path of sends) {
      for (const type of [undefined, form]) {
        const { status, detail } = await refusal(path, ' {"subject": "a=b&c"}', type);
        assert.equal(status, 415, `${path} ${type}`);
        assert.match(detail, /looks like JSON. Send it with Content-Type: application\/json\./);
      }
    }
    const users = await refusal('/users', '{"username": "ann@localhost"}', form);
    assert.deepEqual([users.status, users.detail.includes('application/json')], [415, true]);
    assert.equal(((await server.admin.json(drafts)) as { total: number }).total, 0);
  });

  test('an empty message is not taken for a case without fields', async () => {
    for (const path of sends) {
      const { status, detail } = await refusal(path, '', 'message/rfc822');
      assert.equal(status, 422, path);
      assert.match(detail, /The body is empty\. Send the content as message\/rfc822, or fields as application\/json\./);
    }
  });

  test('the refusal of a media type names all that are accepted', async () => {
    for (const path of sends) {
      const { status, detail } = await refusal(path, 'x', 'text/plain');
      assert.equal(status, 415, path);
      assert.match(detail, /application\/json, application\/x-www-form-urlencoded, message\/rfc822/);
    }
    assert.match((await refusal('/client/send', 'x', 'text/plain')).detail, /application\/json5, multipart\/form-data/);
  });

  test('a message without a Content-Type is still a message', async () => {
    const { status } = await server.admin.request(drafts, {
      method: 'POST',
      body: Buffer.from('Subject: x\r\n\r\n{}'),
    });
    assert.equal(status, 201);
  });
});
