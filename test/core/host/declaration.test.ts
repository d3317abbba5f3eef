import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kitComplaint } from '../../../core/host/declaration.js';

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
