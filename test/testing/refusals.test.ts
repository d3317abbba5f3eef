import assert from 'node:assert/strict';
import { readdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { definePlugin, directory, dns, reject, service, z, type Plugin } from '../../core/plugin.js';
import { drive } from '../kit/index.js';
import { runPostern } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const folders = async (): Promise<number> =>
  (await readdir(tmpdir())).filter((name) => name.startsWith(`postern-testing-${process.pid}-`)).length;

/** The sentence of a plugin that cannot be driven. Nothing of it is left. */
async function refusal(plugin: Plugin, options: Parameters<typeof drive>[1] = {}): Promise<string> {
  const error = await drive(plugin, options).then(
    () => assert.fail('it was driven'),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof Error);
  assert.equal(await folders(), 0);
  return error.message;
}

const greylist = service<{ size(): number }>('example.greylist');

describe('what cannot start is refused with the words of a start', () => {
  test('a wrong option', async (t) => {
    const text = `
      import { definePlugin, z } from 'postern/plugin';
      export const polite = definePlugin({
        name: 'polite',
        options: z.strictObject({ minutes: z.int().min(1).default(5), hosts: z.array(z.string()).default([]) }),
        setup() {},
      });`;
    const options = { minutes: 0, host: ['a.example'] };
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'polite.mjs'), text);
    const config = { sitePlugins: ['./polite.mjs'], plugins: { polite: options } };
    await writeFile(join(folder, 'postern.json5'), JSON.stringify(config));
    const { stderr } = await runPostern(['config', 'check'], { cwd: folder });

    const polite = definePlugin({
      name: 'polite',
      options: z.strictObject({ minutes: z.int().min(1).default(5), hosts: z.array(z.string()).default([]) }),
      setup() {},
    });
    const told = (await refusal(polite, { options })).split('\n');
    assert.equal(told.length, 2);
    for (const sentence of told) {
      assert.match(sentence, /^plugins\.polite\.hosts?: |^plugins\.polite\.minutes: /);
      assert.ok(stderr.includes(sentence), `${sentence} is not in ${stderr}`);
    }
  });

  test('a service that no plugin provides', async () => {
    const needy = definePlugin({ name: 'needy', needs: { greylist }, setup() {} });
    assert.equal(
      await refusal(needy),
      'Plugin needy needs example.greylist, and no plugin that is switched on provides it.',
    );
  });

  test('a setup that throws', async () => {
    const broken = definePlugin({
      name: 'broken',
      setup() {
        throw new Error('no luck today');
      },
    });
    assert.equal(await refusal(broken), 'Plugin broken could not start: no luck today.');
  });

  test('a hook at a stage that there is not', async () => {
    const lost = definePlugin({
      name: 'lost',
      setup: ({ smtp }) => smtp.on('rcpt' as 'rcptTo', () => reject(550, '5.7.1', 'No')),
    });
    assert.match(await refusal(lost), /^Plugin lost, hook of rcpt: there is no such stage; stages: connect, /);
  });
});

describe('what a test asks for in vain is told', () => {
  const plain = definePlugin({ name: 'plain', uses: { directory }, setup() {} });

  test('what is no plugin', async () => {
    await assert.rejects(drive({} as Plugin), /drive: give what definePlugin returns/);
    await assert.rejects(drive(plain, { beside: [undefined as unknown as Plugin] }), /drive: give what definePlugin/);
  });

  test('a service that the plugin does not name', async () => {
    const services = { directroy: {} };
    assert.equal(
      await refusal(plain, { services }),
      'drive: no plugin names directroy in needs or uses; they name directory.',
    );
  });

  test('a DNS of its own', async () => {
    const asking = definePlugin({ name: 'asking', needs: { dns }, setup() {} });
    assert.match(await refusal(asking, { services: { dns: {} } }), /^drive: the DNS is told its answers: dns: \{/);
  });

  test('an option of drive that there is not', async () => {
    assert.match(
      await refusal(plain, { option: {} } as object),
      /^drive: there is no option option; options: options, services, /,
    );
  });

  test('a metric and a component that there is not', async (t) => {
    const site = await drive(plain, { test: t });
    await assert.rejects(site.metric('plain_total'), { message: 'There is no metric postern_plain_total.' });
    assert.throws(() => site.health('plain'), { message: 'There is no component plain in health.' });
  });

  test('an address of a client that is none', async (t) => {
    const site = await drive(plain, { test: t });
    await assert.rejects(site.connect({ ip: 'localhost' }), /"localhost" is no IP address/);
  });

  test('anything of a site that is closed', async () => {
    const site = await drive(plain);
    await site.close();
    await site.close();
    await assert.rejects(site.rcpt(), { message: 'The site is closed.' });
    await assert.rejects(site.call('GET', '/'), { message: 'The site is closed.' });
    assert.equal(await folders(), 0);
  });
});
