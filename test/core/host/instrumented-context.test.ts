import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { defineEndpoint, definePlugin, problem, type PluginContext } from '../../../core/plugin.js';
import { pluginsOverview, type PluginsOverview } from '../../../core/contracts/plugins-overview.js';
import { drive } from '../../kit/index.js';

const pluginThat = (setup: (context: PluginContext) => void) => definePlugin({ name: 'subject', setup });

let overview: PluginsOverview | undefined;
const looking = definePlugin({
  name: 'looking',
  needs: { pluginsOverview },
  setup: (_context, given) => void (overview = given.pluginsOverview),
});

function stateOfSubject(): readonly [faults: number, where: string | undefined, message: string | undefined] {
  const state = overview?.plugins().find(({ name }) => name === 'subject');
  return [state?.faults ?? -1, state?.lastFault?.where, state?.lastFault?.message];
}

suite('what a plugin does wrong is counted', () => {
  test('in an endpoint, unless the client caused it', async (t) => {
    const answers: Readonly<Record<string, () => object | Promise<object>>> = {
      '/throws': () => {
        throw new Error('no luck');
      },
      '/rejects': () => Promise.reject(new TypeError('no luck either')),
      '/gone': () => {
        throw problem('not-found', 'Nobody is here.');
      },
      '/well': () => ({}),
    };
    const site = await drive(
      pluginThat(({ http }) =>
        http.mount(
          Object.entries(answers).map(([path, handle]) =>
            defineEndpoint({ method: 'GET', path, summary: 'x', group: 'Site', access: 'read', handle }),
          ),
        ),
      ),
      { test: t, beside: [looking] },
    );
    const statuses = [];
    for (const path of Object.keys(answers)) statuses.push((await site.call('GET', path)).status);
    assert.deepEqual(statuses, [500, 500, 404, 200]);
    assert.deepEqual(stateOfSubject(), [2, 'GET /rejects', 'no luck either']);
  });

  test('in the collect function of a gauge', async (t) => {
    const site = await drive(
      pluginThat(({ metrics }) => {
        metrics.gauge('subject_things', 'Things.', [], () => {
          throw new Error('no luck');
        });
      }),
      { test: t, beside: [looking] },
    );
    await assert.rejects(site.metric('subject_things'), /There is no metric/);
    assert.deepEqual(stateOfSubject(), [1, 'metric subject_things', 'no luck']);
  });

  test('in a health check', async (t) => {
    const site = await drive(
      pluginThat(({ health }) => {
        health.check('one', () => {
          throw new Error('no luck');
        });
        health.check('two', (() => Promise.resolve({ status: 'up' })) as never);
        health.check('three', (() => ({ status: 'upp' })) as never);
      }),
      { test: t, beside: [looking] },
    );
    assert.match(site.health('one').why ?? '', /failed; its state is not known/);
    assert.match(site.health('two').why ?? '', /returned a promise: it must be synchronous/);
    assert.match(site.health('three').why ?? '', /answered "upp": valid are up, degraded and down/);
    assert.deepEqual(stateOfSubject().slice(1), ['health check one', 'no luck']);
  });
});

suite('plain JavaScript that no compiler has seen is refused when it starts', () => {
  const mistakes: Readonly<Record<string, readonly [(context: PluginContext) => void, RegExp]>> = {
    'a watcher that is none': [
      ({ smtp }) => smtp.watch('delivered', undefined as never),
      /watcher of delivered: not a function/,
    ],
    'an event that there is not': [
      ({ smtp }) => smtp.watch('deliverd' as never, () => {}),
      /there is no event deliverd; events: accepted, .*closed/,
    ],
    'a timer without a task': [
      ({ every }) => every(30, undefined as never),
      /every\(30, …\): the task is not a function/,
    ],
    'a health check that is none': [
      ({ health }) => health.check('one', { status: 'up' } as never),
      /Health component "one".*not a function/,
    ],
    'a release that is none': [({ onClose }) => onClose(Promise.resolve() as never), /onClose: not a function/],
    'a target that cannot be started': [
      ({ smtp }) => smtp.deliverTo('later', {} as never),
      /target later: it has no start/,
    ],
    'a link without a place': [
      ({ http }) => http.navigate({ title: 'Page', href: '/page' } as never),
      /link \/page: order must be a number/,
    ],
    'a link for nobody': [
      ({ http }) => http.navigate({ title: 'Page', href: '/page', order: 1, role: 'reed' } as never),
      /link \/page: there is no role "reed"; roles: read, operate, admin/,
    ],
  };
  for (const [title, [setup, why]] of Object.entries(mistakes)) {
    test(title, async () => {
      await assert.rejects(drive(pluginThat(setup)), why);
    });
  }
});
