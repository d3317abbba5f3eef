import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { pluralize, secondsText } from '../../../core/text/format.js';

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
