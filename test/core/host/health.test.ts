import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HealthReport } from '../../../core/contracts/health.js';
import { HealthRegistry } from '../../../core/host/health.js';

function registry(): { readonly health: HealthRegistry; readonly turn: (ms: number) => void } {
  let now = Date.UTC(2026, 10, 21, 12);
  const start = now;
  const health = new HealthRegistry({ clock: { now: () => now, monotonic: () => now - start } });
  return { health, turn: (ms) => void (now += ms) };
}

test('the worst component decides', () => {
  const { health } = registry();
  assert.equal(health.status(), 'up');
  health.check('a', 'one', () => ({ status: 'up' }));
  health.check('a', 'two', () => ({ status: 'degraded', why: 'slow' }));
  assert.equal(health.status(), 'degraded');
  const undo = health.check('b', 'three', () => ({ status: 'down', why: 'gone' }));
  assert.equal(health.status(), 'down');
  undo();
  assert.equal(health.status(), 'degraded');
});

test('since is the time of the last change of state, not of the last check', () => {
  const { health, turn } = registry();
  let report: HealthReport = { status: 'up' };
  health.check('a', 'disk', () => report);
  turn(1000);
  report = { status: 'degraded', why: 'low' };
  assert.deepEqual(health.components()['disk'], { status: 'degraded', since: '2026-11-21T12:00:01.000Z', why: 'low' });
  turn(1000);
  report = { status: 'degraded', why: 'lower' };
  assert.deepEqual(health.components()['disk'], {
    status: 'degraded',
    since: '2026-11-21T12:00:01.000Z',
    why: 'lower',
  });
  assert.equal(health.uptime(), 2);
});

test('the number of changes is another one after another state or component, and only then', () => {
  const { health } = registry();
  let report: HealthReport = { status: 'up' };
  const seen = new Set([health.changes]);
  const changes = (): boolean => {
    health.status();
    const isNew = !seen.has(health.changes);
    seen.add(health.changes);
    return isNew;
  };
  const undo = health.check('a', 'disk', () => report);
  assert.deepEqual([changes(), changes()], [true, false]);
  report = { status: 'degraded', why: 'low' };
  assert.deepEqual([changes(), changes()], [true, false]);
  report = { status: 'degraded', why: 'lower' };
  assert.equal(changes(), false);
  undo();
  assert.deepEqual([changes(), changes()], [true, false]);
});

test('a check that throws or returns nonsense is degraded, and the others still run', () => {
  const { health } = registry();
  health.check('a', 'broken', () => {
    throw new Error('/secret/path');
  });
  health.check('a', 'nonsense', () => ({ status: 'fine' }) as unknown as HealthReport);
  health.check('a', 'well', () => ({ status: 'up' }));
  const { broken, nonsense, well } = health.components();
  assert.deepEqual([broken?.status, nonsense?.status, well?.status], ['degraded', 'degraded', 'up']);
  assert.doesNotMatch(broken?.why ?? '', /secret/);
});

test('a name belongs to one check until its removal', () => {
  const { health } = registry();
  const undo = health.check('a', 'disk', () => ({ status: 'up' }));
  assert.throws(() => health.check('b', 'disk', () => ({ status: 'up' })), /plugin b is already checked by a/);
  undo();
  health.check('b', 'disk', () => ({ status: 'down' }));
  undo();
  assert.equal(health.status(), 'down');
});
