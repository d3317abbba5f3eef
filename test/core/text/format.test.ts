import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseTime, pluralize, secondsText } from '../../../core/text/format.js';

describe('what is counted', () => {
  it('is one, or several', () => {
    assert.equal(pluralize(1, 'message'), '1 message');
    assert.equal(pluralize(0, 'message'), '0 messages');
    assert.equal(pluralize(1200, 'entry waits', 'entries wait'), '1,200 entries wait');
  });

  it('has no digit grouping in seconds', () => {
    assert.equal(secondsText(1), '1 second');
    assert.equal(secondsText(1200), '1200 seconds');
  });
});

describe('a time that is written', () => {
  it('is in UTC without a zone', () => {
    const at = Date.UTC(2026, 10, 26, 15, 31);
    for (const text of [
      '2026-11-26T15:31',
      '2026-11-26T15:31:00.000Z',
      '2026-11-26T17:31+02:00',
      '2026-11-26T10:31-0500',
    ]) {
      assert.equal(parseTime(text), at, text);
    }
    assert.equal(parseTime('2026-11-26'), Date.UTC(2026, 10, 26));
  });

  it('is a day that there is', () => {
    for (const text of ['', 'yesterday', '2026', '2026-02-30', '2026-13-01', '2026-11-26T25:00', '2026-11-26 15:31']) {
      assert.ok(Number.isNaN(parseTime(text)), text);
    }
  });
});
