import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { asStorageProblem } from '../../../core/disk/fault.js';
import { startFailure } from '../../../core/host/plugin-faults.js';
import type { PluginHost } from '../../../core/host/plugin-host.js';
import { provide } from '../../../core/contracts/service.js';
import { definePlugin, service, type Plugin } from '../../../core/plugin.js';
import { isStartError } from '../../../core/problem.js';
import { createHost, lines, link, pluginSetOf, sitePluginSet } from './plugin-host-harness.js';

const spring = service<string>('test.spring');
const wheel = service<string>('test.wheel');
const none = z.strictObject({});

async function refusalOf(host: PluginHost): Promise<string> {
  try {
    await host.start();
  } catch (error) {
    assert.ok(isStartError(error), String(error));
    return error.message;
  }
  return assert.fail('it started');
}

suite('plugin host', () => {
  test('a plugin starts after the provider of its needs, and stops before it', async () => {
    const events: string[] = [];
    const needy = definePlugin({
      name: 'needy',
      options: none,
      needs: { spring },
      setup({ onClose }, { spring }) {
        events.push(`needy got ${spring}`);
        onClose(() => void events.push('needy stops'));
      },
    });
    const provider = definePlugin({
      name: 'provider',
      options: none,
      provides: { spring },
      setup({ onClose }) {
        onClose(() => void events.push('provider stops'));
        return { spring: 'a spring' };
      },
    });
    const { host } = createHost([needy, provider]);
    await host.start();
    await host.stop();
    assert.deepEqual(events, ['needy got a spring', 'needy stops', 'provider stops']);
  });

  test('a service of core satisfies a need', async () => {
    let got: string | undefined;
    const needy = definePlugin({
      name: 'needy',
      options: none,
      needs: { spring },
      setup: (_context, given) => void (got = given.spring),
    });
    await createHost([needy], { provided: [provide(spring, 'from core')] }).host.start();
    assert.equal(got, 'from core');
  });

  test('a service in uses is undefined without a provider', async () => {
    let given: Readonly<Record<string, unknown>> | undefined;
    const user = definePlugin({
      name: 'user',
      options: none,
      uses: { spring },
      setup: (_context, services) => void (given = services),
    });
    await createHost([user]).host.start();
    assert.ok(given !== undefined && given['spring'] === undefined);
  });

  test('circular needs are refused with the names of the plugins', async () => {
    const left = definePlugin({
      name: 'left',
      options: none,
      needs: { spring },
      provides: { wheel },
      setup: () => ({ wheel: '' }),
    });
    const right = definePlugin({
      name: 'right',
      options: none,
      needs: { wheel },
      provides: { spring },
      setup: () => ({ spring: '' }),
    });
    assert.match(await refusalOf(createHost([left, right]).host), /left → right → left/);
  });

  test('a missing service is refused with plugin and service', async () => {
    const needy = definePlugin({ name: 'needy', options: none, needs: { spring }, setup: () => {} });
    assert.match(await refusalOf(createHost([needy]).host), /needy needs test\.spring/);
  });

  test('two plugins of one name, and two providers of one service, are refused', async () => {
    const one = definePlugin({ name: 'one', options: none, provides: { spring }, setup: () => ({ spring: '' }) });
    const two = definePlugin({ name: 'two', options: none, provides: { spring }, setup: () => ({ spring: '' }) });
    assert.match(await refusalOf(createHost([one, one]).host), /Two plugins are called one/);
    assert.match(await refusalOf(createHost([one, two]).host), /two provides test\.spring, which plugin one provides/);
  });

  test('a service that setup does not return is refused at the start', async () => {
    const liar = definePlugin({
      name: 'liar',
      options: none,
      provides: { spring },
      setup: (() => ({})) as unknown as () => { spring: string },
    });
    assert.match(await refusalOf(createHost([liar]).host), /liar could not start: setup returned nothing for spring/);
  });

  test('when one fails, the started plugins stop in reverse order and nothing stays registered', async () => {
    const events: string[] = [];
    const open = (name: string) =>
      definePlugin({
        name,
        options: none,
        setup({ http, onClose }) {
          http.navigate(link(name));
          onClose(() => void events.push(name));
        },
      });
    const broken = definePlugin({
      name: 'broken',
      options: none,
      setup({ http, onClose }) {
        http.navigate(link('broken'));
        onClose(() => void events.push('broken'));
        throw new Error('no luck');
      },
    });
    const { host, inForce } = createHost([open('first'), open('second'), broken]);
    assert.match(await refusalOf(host), /broken could not start: no luck/);
    assert.deepEqual(events, ['broken', 'second', 'first']);
    assert.deepEqual(inForce, []);
  });

  test("a refused registration undoes the plugin's others", async () => {
    const greedy = definePlugin({
      name: 'greedy',
      options: none,
      setup({ http }) {
        http.navigate(link('one'));
        http.navigate(link('one'));
      },
    });
    const { host, inForce } = createHost([greedy]);
    assert.match(await refusalOf(host), /greedy could not start: one twice/);
    assert.deepEqual(inForce, []);
  });

  test('a release that throws is logged and the others still run', async () => {
    const events: string[] = [];
    const plugin = definePlugin({
      name: 'stubborn',
      options: none,
      setup({ onClose }) {
        onClose(() => void events.push('last'));
        onClose(() => Promise.reject(new Error('stuck')));
      },
    });
    const { host } = createHost([plugin]);
    await host.start();
    await host.stop();
    assert.deepEqual(events, ['last']);
    assert.ok(lines.some((line) => line.includes('could not release')));
  });
});

suite('reconfiguration', () => {
  const sized = z.strictObject({ size: z.number().default(1) });

  const changeable = (name: string, seen: string[], refuse = -1) =>
    definePlugin({
      name,
      options: sized,
      setup: () => ({
        reconfigure({ size }: { size: number }) {
          if (size === refuse) throw new Error(`${name} refuses ${size}`);
          seen.push(`${name} ${size}`);
        },
      }),
    });
  /** Brings other sizes into force for good. */
  async function resize(host: PluginHost, plugins: readonly Plugin[], sizes: Readonly<Record<string, number>>) {
    const options = Object.fromEntries(Object.entries(sizes).map(([name, size]) => [name, { size }]));
    const program = pluginSetOf(plugins, options);
    const waiting = [...host.waiting(program).keys()];
    const change = await host.reload(program);
    change.commit();
    return waiting;
  }

  test('only plugins with changed options are reconfigured', async () => {
    const seen: string[] = [];
    const plugins = [changeable('one', seen), changeable('two', seen)];
    const { host } = createHost(plugins);
    await host.start();
    assert.deepEqual(await resize(host, plugins, { one: 1, two: 2 }), []);
    assert.deepEqual(seen, ['two 2']);
  });

  test('a plugin that cannot change at run time waits for a restart', async () => {
    const plugins = [definePlugin({ name: 'fixed', options: sized, setup: () => {} })];
    const { host } = createHost(plugins);
    await host.start();
    assert.deepEqual(await resize(host, plugins, { fixed: 2 }), ['fixed']);
  });

  test('when one refuses, earlier ones get their old options back', async () => {
    const seen: string[] = [];
    const plugins = [changeable('one', seen), changeable('two', seen, 5)];
    const { host } = createHost(plugins);
    await host.start();
    await assert.rejects(resize(host, plugins, { one: 5, two: 5 }), /two refuses 5/);
    assert.deepEqual(seen, ['one 5', 'one 1']);
    await resize(host, plugins, { one: 1, two: 1 });
    assert.deepEqual(seen, ['one 5', 'one 1']);
  });

  test('an undone change restores the old options', async () => {
    const seen: string[] = [];
    const plugins = [changeable('one', seen)];
    const { host } = createHost(plugins);
    await host.start();
    const change = await host.reload(pluginSetOf(plugins, { one: { size: 2 } }));
    await change.undo();
    assert.deepEqual(seen, ['one 2', 'one 1']);
  });

  test('a plugin that declares replace is set up anew and swapped, and the old one stops', async () => {
    const events: string[] = [];
    const plugins = [
      definePlugin({
        name: 'swapped',
        options: sized,
        reload: 'replace',
        setup({ http, onClose }, { options }) {
          if (options.size === 9) throw new Error('nine');
          http.navigate(link(`size ${options.size}`));
          onClose(() => void events.push(`closed ${options.size}`));
        },
      }),
    ];
    const { host, inForce } = createHost(plugins);
    await host.start();
    await resize(host, plugins, { swapped: 2 });
    await setImmediate();
    await setImmediate();
    assert.deepEqual([inForce, events], [['size 2'], ['closed 1']]);
    await assert.rejects(resize(host, plugins, { swapped: 9 }), /swapped refuses its options: nine/);
    assert.deepEqual(inForce, ['size 2']);
  });
});

suite('plugins of the site', () => {
  const events: string[] = [];
  const version = (word: string, more: Partial<Plugin> = {}): Plugin => ({
    ...definePlugin({
      name: 'site',
      setup({ http, onClose }) {
        http.navigate(link(word));
        onClose(() => void events.push(`${word} closed`));
      },
    }),
    ...more,
  });

  test('a successor replaces a plugin in one step, and the old one is released when its work has ended', async () => {
    events.length = 0;
    let settle = (): void => undefined;
    const settled = new Promise<void>((resolve) => (settle = resolve));
    const { host, inForce } = createHost([], { wanted: sitePluginSet([version('one')], '1'), settled: () => settled });
    await host.start();
    const next = sitePluginSet([version('two')], '2');
    assert.deepEqual(
      host.differences(next).map(({ key, restart }) => [key, restart]),
      [['sitePlugins.site', false]],
    );
    const change = await host.reload(next);
    change.commit();
    assert.deepEqual([inForce, events], [['two'], []]);
    settle();
    for (let turn = 0; turn < 5; turn += 1) await setImmediate();
    assert.deepEqual(events, ['one closed']);
    await host.stop();
    assert.deepEqual(events, ['one closed', 'two closed']);
  });

  test('an undone change keeps the old plugin without a new setup', async () => {
    events.length = 0;
    const { host, inForce } = createHost([], { wanted: sitePluginSet([version('one')], '1') });
    await host.start();
    const change = await host.reload(sitePluginSet([version('two')], '2'));
    await change.undo();
    assert.deepEqual([inForce, events], [['one'], ['two closed']]);
    assert.deepEqual(host.differences(sitePluginSet([version('two')], '2')).length, 1);
  });

  test('a provider for a plugin that stays waits for a restart, and is replaced together with it', async () => {
    const lender = (more: object = {}) =>
      definePlugin({ name: 'lender', provides: { spring }, setup: () => ({ spring: 'a spring' }), ...more });
    const got: unknown[] = [];
    const holder = () =>
      definePlugin({ name: 'holder', needs: { spring }, setup: (_, given) => void got.push(given.spring) });
    const [first, held] = [lender(), holder()];
    const { host } = createHost([], { wanted: sitePluginSet([first, held], '1') });
    await host.start();
    const alone = sitePluginSet([lender(), held], '2');
    assert.match(host.waiting(alone).get('lender') ?? '', /The plugin holder holds a service/);
    const both = sitePluginSet([lender({ setup: () => ({ spring: 'another' }) }), holder()], '3');
    assert.equal(host.waiting(both).size, 0);
    (await host.reload(both)).commit();
    assert.deepEqual(got, ['a spring', 'another']);
  });

  test('a setup that never finishes is abandoned, and what it opens later is released at once', async () => {
    events.length = 0;
    let open = (): void => undefined;
    const hanging = definePlugin({
      name: 'site',
      setup: ({ onClose }) =>
        new Promise<void>(() => {
          open = () => onClose(() => void events.push('released'));
        }),
    });
    const { host } = createHost([], { wanted: sitePluginSet([hanging], '1') });
    await host.start();
    assert.match(host.current.failed[0]?.why ?? '', /site could not start: it has not started after 1 s/);
    open();
    assert.deepEqual(events, ['released']);
  });
});

test('a start that fails for want of descriptors names the fault of the system', () => {
  const fault = Object.assign(new Error('EMFILE: too many open files'), { code: 'EMFILE' });
  const failed = startFailure(
    definePlugin({ name: 'users', options: none, setup: () => undefined }),
    asStorageProblem(fault),
  );
  assert.equal(failed.message, 'Plugin users could not start: EMFILE: too many open files');
});
