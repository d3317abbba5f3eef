import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { lines } from '../support/delivery.js';
import { atEnd, suiteEnding } from '../support/ending.js';
import { freePort } from '../support/free-port.js';
import { HttpClient } from '../support/http-client.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { projectRoot } from '../support/project.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { untilTrue } from '../support/until.js';

const suite = suiteEnding();

const rules = `
for word, symbol in pairs({ marked = 'MARKED', renamed = 'RENAMED', later = 'LATER' }) do
  rspamd_config:register_symbol({
    name = symbol,
    callback = function(task)
      local rcpt = (task:get_recipients('smtp') or {})[1]
      return task:get_subject() == word and task:get_helo() == 'client.example' and rcpt ~= nil and rcpt.addr == 'postmaster@localhost'
    end,
  })
end`;

/** Resolves with the URL of an rspamd that has rules of its own. Its list of public suffixes is short: that starts in a second. */
async function startRspamd(folder: string): Promise<string> {
  const port = await freePort();
  const file = (name: string): string => join(folder, name);
  await writeFile(file('suffixes'), 'example\n');
  await writeFile(file('rules.lua'), rules);
  await writeFile(
    file('rspamd.conf'),
    `options {
      pidfile = "${file('pid')}"; tempdir = "${folder}"; cache_file = "${file('cache')}"; hs_cache_dir = "${folder}";
      filters = ""; disable_hyperscan = true; url_tld = "${file('suffixes')}";
      dns { nameserver = ["127.0.0.1:1"]; timeout = 0.1s; retransmits = 1; }
    }
    logging { type = "console"; level = "error"; }
    lua = "${file('rules.lua')}";
    worker "normal" { bind_socket = "127.0.0.1:${port}"; count = 1; }
    actions { reject = 15; "rewrite subject" = 10; "add header" = 6; greylist = 4; subject = "[SPAM] %s"; }
    group "test" { symbols { "MARKED" { score = 7; } "RENAMED" { score = 11; } "LATER" { score = 5; } } }\n`,
  );
  // -i: as root it keeps its user.
  const child = spawn(findPeer('rspamd') ?? 'rspamd', ['-f', '-i', '-c', file('rspamd.conf')], { stdio: 'ignore' });
  const ended = once(child, 'exit');
  atEnd(suite, async () => {
    child.kill();
    await ended;
  });
  const url = `http://127.0.0.1:${port}`;
  await untilTrue('rspamd answers', () =>
    fetch(`${url}/ping`).then(
      ({ ok }) => ok,
      () => false,
    ),
  );
  return url;
}

describe('the example rspamd with a real rspamd', { skip: skipWithout('rspamd') }, () => {
  let server: ServerProcess;

  before(async () => {
    const folder = await temporaryFolder(suite);
    const config = {
      smtp: { listeners: [{ mode: 'mx', port: 0 }] },
      sitePlugins: [{ from: join(projectRoot, 'docs', 'examples', 'rspamd'), required: true }],
      plugins: { rspamd: { url: await startRspamd(folder) } },
    };
    server = await ServerProcess.start(suite, { folder, config: JSON.stringify(config) });
  });

  const answerTo = async (...message: string[]): Promise<string> => {
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    await client.command('MAIL FROM:<anna@elsewhere.example>');
    await client.command('RCPT TO:<postmaster@localhost>');
    const { raw } = await client.data(lines('From: anna@elsewhere.example', ...message));
    client.close();
    return raw.trim();
  };

  /** The fields about spam of the newest message. */
  const marks = async (): Promise<readonly string[]> => {
    const admin = HttpClient.admin(server.http);
    const folder = '/store/localhost/postmaster/folders/INBOX';
    const { items } = (await admin.json(folder)) as { items: readonly { id: string }[] };
    const headers = { accept: 'message/rfc822' };
    const { text } = await admin.request(`${folder}/messages/${items[0]?.id ?? ''}`, { headers });
    return text.split('\r\n').filter((line) => /^(?:X-Spam-|Subject:)/.test(line));
  };

  test('a clean message arrives, with its score', async () => {
    assert.match(await answerTo('Subject: clean', '', 'hello'), /^250 /);
    assert.deepEqual((await marks()).toSorted(), [
      'Subject: clean',
      'X-Spam-Status: No, score=0.00 required=15.00 tests=',
    ]);
  });

  test('spam is marked, or has another subject', async () => {
    assert.match(await answerTo('X-Spam-Flag: NO', 'Subject: marked', '', 'hello'), /^250 /);
    assert.deepEqual((await marks()).toSorted(), [
      'Subject: marked',
      'X-Spam-Flag: YES',
      'X-Spam-Status: Yes, score=7.00 required=15.00 tests=MARKED',
    ]);
    assert.match(await answerTo('Subject: renamed', '', 'hello'), /^250 /);
    assert.ok((await marks()).includes('Subject: [SPAM] renamed'));
  });

  test('what rspamd greylists or refuses stays with its client', async () => {
    assert.match(await answerTo('Subject: later', '', 'hello'), /^451 4\.7\.1 /);
    const gtube = 'XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X';
    assert.match(await answerTo('Subject: spam', '', gtube), /^550 5\.7\.1 Gtube pattern/);
  });
});
