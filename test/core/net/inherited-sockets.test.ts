import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { InheritedSockets } from '../../../core/net/inherited-sockets.js';
import { isStartError } from '../../../core/problem.js';

const pid = 77;
const handed = (env: Readonly<Record<string, string>>) => new InheritedSockets({ LISTEN_PID: `${pid}`, ...env }, pid);

function refuses(act: () => unknown, sentence: RegExp): void {
  assert.throws(act, (error: Error) => {
    assert.ok(isStartError(error));
    assert.match(error.message, sentence);
    return true;
  });
}

describe('sockets that a service manager hands over', () => {
  it('are found by their names, from descriptor 3 on', () => {
    const sockets = handed({ LISTEN_FDS: '3', LISTEN_FDNAMES: 'http:smtp:submission' });
    assert.deepEqual(
      ['http', 'smtp', 'submission'].map((name) => sockets.find(name, 'it')),
      [3, 4, 5],
    );
  });

  it('are called unknown where the service manager gives no names', () => {
    assert.equal(handed({ LISTEN_FDS: '1' }).find('unknown', 'it'), 3);
  });

  it('a name that is missing, or there twice, is refused with what there is', () => {
    const sockets = handed({ LISTEN_FDS: '3', LISTEN_FDNAMES: 'smtp:smtp:http' });
    refuses(
      () => sockets.find('lmtp', 'SMTP listener lmtp'),
      /^SMTP listener lmtp cannot take the socket lmtp: the service manager hands over "smtp", "smtp", "http"; /,
    );
    refuses(() => sockets.find('smtp', 'it'), /more than one was handed over under that name/);
  });

  for (const [what, env, sentence] of [
    ['nothing', {}, /no service manager has handed over any/],
    ['what is meant for another process', { LISTEN_PID: '78', LISTEN_FDS: '1' }, /for process 78, and this is 77/],
    ['no count', { LISTEN_FDS: 'one' }, /LISTEN_FDS="one" is no number of sockets/],
    ['a negative count', { LISTEN_FDS: '-1' }, /is no number of sockets/],
    ['an endless count', { LISTEN_FDS: '9999' }, /is no number of sockets/],
    ['too few names', { LISTEN_FDS: '2', LISTEN_FDNAMES: 'smtp' }, /has 1 name for 2 sockets/],
    ['too many names', { LISTEN_FDS: '1', LISTEN_FDNAMES: 'smtp:http' }, /has 2 names for 1 socket\b/],
  ] as const) {
    it(`${what}: a sentence, and nothing to claim`, () => {
      const sockets = handed(env);
      refuses(() => sockets.find('smtp', 'HTTP'), sentence);
      sockets.refuseUnclaimed([]);
    });
  }

  it('one that nobody takes is refused, by name and by descriptor', () => {
    const sockets = handed({ LISTEN_FDS: '2', LISTEN_FDNAMES: 'smtp:http' });
    sockets.refuseUnclaimed([{ socket: 'http' }, { socket: 'smtp' }]);
    sockets.refuseUnclaimed([{ socket: 'http' }, { fd: 3 }]);
    refuses(
      () => sockets.refuseUnclaimed([{ socket: 'http' }]),
      /Nothing takes what .* hands over: "smtp"\. Add socket: "smtp"/,
    );
    InheritedSockets.none.refuseUnclaimed([]);
  });
});
