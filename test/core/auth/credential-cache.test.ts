import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CredentialCache } from '../../../core/auth/credential-cache.js';

function cacheAt(max = 10) {
  const time = { ms: 1000 };
  const cache = new CredentialCache({ ttlSeconds: 60, max, clock: { monotonic: () => time.ms } });
  return { cache, time };
}

describe('the credential cache', () => {
  it('knows a password that was remembered, of that user only', () => {
    const { cache } = cacheAt();
    cache.remember('anna', 'secret');
    assert.equal(cache.get('anna', 'secret'), true);
    assert.equal(cache.get('berta', 'secret'), undefined);
  });

  it('never says that a password is wrong, and a wrong one does not evict the right one', () => {
    const { cache } = cacheAt();
    cache.remember('anna', 'secret');
    assert.equal(cache.get('anna', 'guess'), undefined);
    assert.equal(cache.get('anna', 'secret'), true);
  });

  it('forgets when its time is over', () => {
    const { cache, time } = cacheAt();
    cache.remember('anna', 'secret');
    time.ms += 59_999;
    assert.equal(cache.get('anna', 'secret'), true);
    time.ms += 1;
    assert.equal(cache.get('anna', 'secret'), undefined);
    assert.equal(cache.size, 0);
  });

  it('forgets a user when told', () => {
    const { cache } = cacheAt();
    cache.remember('anna', 'secret');
    cache.forget('anna');
    assert.equal(cache.get('anna', 'secret'), undefined);
  });

  it('holds no more users than it may', () => {
    const { cache } = cacheAt(2);
    for (const name of ['anna', 'berta', 'carla']) cache.remember(name, 'secret');
    assert.equal(cache.size, 2);
    assert.equal(cache.get('anna', 'secret'), undefined);
    assert.equal(cache.get('carla', 'secret'), true);
  });

  it('separates name and password unambiguously', () => {
    const { cache } = cacheAt();
    cache.remember('anna', 'b:c');
    assert.equal(cache.get('anna', 'c'), undefined);
    assert.equal(cache.get('anna:b', 'c'), undefined);
  });
});
