import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { definePlugin, service, type Plugin } from '../../../core/plugin.js';
import { createHost, link, sitePluginSet } from './plugin-host-harness.js';

const sized = z.strictObject({ size: z.number().default(1) });

const named = (word: string, more: Partial<Plugin> = {}): Plugin => ({
  ...definePlugin({ name: 'site', setup: ({ http }) => http.navigate(link(word)) }),
  ...more,
});

suite('a change of the plugins', () => {
  test('keeps nothing of replaced plugins, however many there were', async () => {
    const { host, inForce } = createHost([], { wanted: sitePluginSet([named('1')], '1') });
    await host.start();
    for (const version of ['2', '3', '4']) (await host.reload(sitePluginSet([named(version)], version))).commit();
    assert.deepEqual(inForce, ['4']);
    assert.deepEqual([...host.current.since.keys()], host.current.running);
    (await host.reload(sitePluginSet([], '5'))).commit();
    assert.equal(host.current.since.size, 0);
  });

  test('that a stop of the server overtakes activates nothing and releases what it had set up', async () => {
    const events: string[] = [];
    let begin = (): void => undefined;
    const slow = definePlugin({
      name: 'site',
      async setup({ http, onClose }) {
        onClose(() => void events.push('released'));
        await new Promise<void>((resolve) => (begin = resolve));
        http.navigate(link('slow'));
      },
    });
    const { host, inForce } = createHost([], { wanted: sitePluginSet([named('one')], '1') });
    await host.start();
    const bringing = host.reload(sitePluginSet([slow], '2'));
    const refused = assert.rejects(bringing, /The server is stopping/);
    await host.stop();
    assert.deepEqual(inForce, []);
    begin();
    await refused;
    assert.deepEqual([inForce, events], [[], ['released']]);
    await assert.rejects(host.reload(sitePluginSet([named('three')], '3')), /The server is stopping/);
    assert.deepEqual(inForce, []);
  });

  test('limits the time of a reconfigure, and restores the old options of a late plugin', async () => {
    const seen: number[] = [];
    const late: (() => void)[] = [];
    const hesitant = definePlugin({
      name: 'hesitant',
      options: sized,
      setup: () => ({
        async reconfigure({ size }: { size: number }) {
          if (size === 2) await new Promise<void>((resolve) => late.push(resolve));
          seen.push(size);
        },
      }),
    });
    const program = (size: number) => sitePluginSet([hesitant], '1', { hesitant: { size } });
    const { host } = createHost([], { wanted: program(1) });
    await host.start();
    await assert.rejects(
      host.reload(program(2)),
      /The plugin hesitant refuses its options: it has not applied them after 1 s/,
    );
    assert.deepEqual(host.current.running[0]?.options, { size: 1 });
    for (const go of late) go();
    for (let turn = 0; turn < 5; turn += 1) await setImmediate();
    assert.deepEqual(seen, [2, 1]);
    assert.deepEqual(host.current.running[0]?.options, { size: 1 });
    (await host.reload(program(3))).commit();
    assert.deepEqual(seen, [2, 1, 3]);
  });

  test('that fails as another plugin of the same module did is refused, and the running version continues', async () => {
    const picky = (name: string) =>
      definePlugin({
        name,
        options: sized,
        setup({ http }, { options: { size } }) {
          if (size === 2) throw new Error('two');
          http.navigate(link(`${name} ${size}`));
        },
      });
    const plugins = [picky('one'), picky('other')];
    const program = (sizes: readonly [number, number]) =>
      sitePluginSet(plugins, '1', { one: { size: sizes[0] }, other: { size: sizes[1] } });
    const { host, inForce } = createHost([], { wanted: program([2, 1]) });
    await host.start();
    assert.deepEqual(inForce, ['other 1']);
    await assert.rejects(host.reload(program([2, 2])), /The plugin other refuses its options: two/);
    assert.deepEqual(inForce, ['other 1']);
    (await host.reload(program([2, 3]))).commit();
    assert.deepEqual(inForce, ['other 3']);
  });

  test('that removes a service which a staying plugin needs is refused', async () => {
    const spring = service<string>('test.spring');
    const lender = definePlugin({ name: 'lender', provides: { spring }, setup: () => ({ spring: 'a spring' }) });
    const holder = definePlugin({ name: 'holder', needs: { spring }, setup: () => {} });
    const { host } = createHost([], { wanted: sitePluginSet([lender, holder], '1') });
    await host.start();
    await assert.rejects(
      host.reload(sitePluginSet([holder], '1')),
      /^Problem: The plugin holder \(\.\/site\) is refused: it needs test\.spring, and no plugin that is switched on provides it\. The running version continues\.$/,
    );
    assert.equal(host.current.running.length, 2);
  });

  test('that is undone restores the old plugin, also after a conflicting registration', async () => {
    let ask = (): void => undefined;
    const greedy = definePlugin({
      name: 'site',
      setup({ http }) {
        http.navigate(link('one'));
        ask = () => http.navigate(link('one'));
      },
    });
    const { host, inForce } = createHost([], { wanted: sitePluginSet([greedy], '1') });
    await host.start();
    assert.throws(ask, /one twice/);
    const change = await host.reload(sitePluginSet([named('two')], '2'));
    await change.undo();
    assert.deepEqual(inForce, ['one']);
  });
});
