import assert from 'node:assert/strict';
import { test } from 'node:test';
import { definePlugin, type OwnFlag } from '../../../core/plugin.js';
import { declarationComplaints, kitComplaint } from '../../../core/host/declaration.js';

test('flags of a command are words of their own with a summary', () => {
  const complaints = (ownFlags: Readonly<Record<string, OwnFlag>>) =>
    declarationComplaints(
      definePlugin({
        name: 'report',
        setup() {},
        commands: [{ name: 'report', summary: 'x', usage: [], ownFlags, run: () => Promise.resolve() }],
      }),
    );
  assert.deepEqual(complaints({ 'since-day': { summary: 'x' }, all: { value: 'X', summary: 'x' } }), []);
  assert.match(complaints({ Since: { summary: 'x' } }).join(), /--Since is not lower-case words/);
  assert.match(complaints({ s: { summary: 'x' } }).join(), /--s is not lower-case words/);
  assert.match(complaints({ json: { summary: 'x' } }).join(), /--json is a flag of the server itself/);
  assert.match(complaints({ since: {} as OwnFlag }).join(), /--since has no summary/);
});

const range = { oldest: '1.2', newest: '2.3' };

test('a plugin for a supported kit is accepted', () => {
  for (const kit of ['1.2', '1.10', '2.0', '2.3', 2]) assert.equal(kitComplaint(kit, range), undefined, String(kit));
});

test('an older or newer kit is refused with advice', () => {
  for (const kit of ['2.4', '3.0', 3]) {
    assert.match(
      kitComplaint(kit, range) ?? '',
      /this server speaks versions 1\.2 to 2\.3: update Postern/,
      String(kit),
    );
  }
  for (const kit of ['1.1', '0.9', 1]) {
    assert.match(kitComplaint(kit, range) ?? '', /: use a newer version of the plugin\.$/, String(kit));
  }
});

test('an invalid version is refused with an example', () => {
  for (const kit of ['', '1', '1.2.3', '1.x', ' 1.2', -1, 1.5, null, undefined, {}, '9'.repeat(100)]) {
    assert.match(kitComplaint(kit, range) ?? '', /write kit: '2\.3'\.$/, JSON.stringify(kit));
  }
});
