import assert from 'node:assert/strict';
import { join } from 'node:path';
import { writeFile } from 'node:fs/promises';
import { suite, test } from 'node:test';
import { builtIns, configure } from '../../../core/main.js';
import { isStartError } from '../../../core/problem.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

/** Broken files, and what is said of each: line and column, key, reason. */
const corpus: readonly (readonly [text: string, said: RegExp])[] = [
  ['{', /:1:2: not valid JSON5/],
  ['{ "a": 1 } }', /:1:12: not valid JSON5/],
  ['{\n  hostname: "a\n}', /:2:\d+: not valid JSON5/],
  ['{\n  // only a comment', /:2:\d+: not valid JSON5/],
  ['"text"', /must be an object/],
  ['{\n\n  hostnames: "x" }', /:3:3: hostnames: unknown key; did you mean hostname\?/],
  ['{ hostname: "not a host" }', /:1:3: hostname: must be a host name/],
  [`{\n  ${'x'.repeat(2000)}: 1 }`, /postern\.json5: the configuration is too long in its keys in line 2\./],
  ['{ hostname: 5 }', /:1:3: hostname: .*expected string/],
  ['{ durability: "fast" }', /:1:3: durability: /],
  ['{ domains: "example.org" }', /:1:3: domains: .*expected array/],
  ['{ domains: ["a.example",\n "b c"] }', /:2:2: domains\.1: /],
  ['{ http: { port: 70000 } }', /:1:11: http\.port: .*<=65535/],
  ['{ http: { publicUrls: ["ftp://x"] } }', /http\.publicUrls\.0: /],
  ['{ http: { accounts: [{ username: "a", role: "king", password: "b" }] } }', /http\.accounts\.0\.role: /],
  [
    '{ http: {\n access: [{ match: "/x", role: "read", public: true }] } }',
    /:2:\d+: http\.access\.0: give exactly one/,
  ],
  ['{ smtp: { listeners: [] } }', /smtp\.listeners: name at least one listener/],
  ['{ smtp: { listeners: [\n{ mode: "imap" }] } }', /:2:3: smtp\.listeners\.0\.mode: /],
  [
    '{ smtp: { listeners: [{ tls: "starttls", cert: "cert.pem" }] } }',
    /smtp\.listeners\.0\.key: key and cert belong together/,
  ],
  ['{ smtp: { listeners: [{ mode: "submission", host: "0.0.0.0" }] } }', /beyond loopback needs tls/],
  ['{ smtp: { limits: { messageBytes: -1 } } }', /:1:21: smtp\.limits\.messageBytes: .*>=1/],
  ['{ smtp: { relayNetworks: ["::/0"] } }', /open relay/],
  ['{ log: { level: "loud" } }', /:1:10: log\.level: /],
  ['{ plugins: { stor: {} } }', /plugins\.stor: there is no such plugin; known plugins: .*store/],
  ['{ plugins: { config: { sync: {} } } }', /plugins\.config\.sync\.source: /],
  ['{ plugins: { config: { sync: { source: "x", layers: ["../x"] } } } }', /sync\.layers\.0: must be a name/],
  ['{ plugins: { config: { sync: { source: "x", username: "a" } } } }', /username and password belong together/],
  ['{ plugins: { config: { maintenanceText: "two\\nlines" } } }', /maintenanceText: one line of printable ASCII/],
];

suite('a corpus of broken configuration files', () => {
  test('each is refused with its file, line, column, key and reason', async (t) => {
    assert.ok(builtIns.length > 0);
    const folder = await temporaryFolder(t);
    const file = join(folder, 'postern.json5');
    for (const [text, said] of corpus) {
      await writeFile(file, text);
      await assert.rejects(configure({}, { cwd: folder, env: {}, print: () => undefined }), (error: Error) => {
        assert.ok(isStartError(error), String(error));
        assert.match(error.message, said, text);
        assert.ok(error.message.startsWith(file), error.message);
        return true;
      });
    }
  });
});
