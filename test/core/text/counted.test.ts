import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { counted, secondsText } from '../../../core/text/counted.js';

describe('what is counted', () => {
  it('is one, or several', () => {
    assert.equal(counted(1, 'message'), '1 message');
    assert.equal(counted(0, 'message'), '0 messages');
    assert.equal(counted(1200, 'entry waits', 'entries wait'), '1,200 entries wait');
  });

  it('has digits alone when it says how long to wait', () => {
    assert.equal(secondsText(1), '1 second');
    assert.equal(secondsText(1200), '1200 seconds');
  });
});
