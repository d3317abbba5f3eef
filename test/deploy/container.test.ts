import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { configure } from '../../core/main.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { projectRoot } from '../support/project.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { deployFolder } from './unit-file.js';

/** Nothing here runs a container: what can be wrong in these files is looked for without one. */
const read = (name: string) => readFileSync(join(deployFolder, name), 'utf8');
const packageJson = JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8')) as {
  readonly files: readonly string[];
  readonly engines: { readonly node: string };
};

/** Instructions with their continued lines in one, by stage. */
function stagesOf(dockerfile: string): readonly (readonly string[])[] {
  const lines = dockerfile
    .replace(/\\\n\s*/g, '')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  const starts = lines.flatMap((line, index) => (line.startsWith('FROM ') ? [index] : []));
  return starts.map((start, index) => lines.slice(start, starts[index + 1]));
}

describe('the Dockerfile, without a daemon', () => {
  const stages = stagesOf(read('Dockerfile'));
  const last = stages.at(-1) ?? [];
  const all = stages.flat();
  const words = (instruction: string) =>
    last.filter((line) => line.startsWith(`${instruction} `)).map((line) => line.slice(instruction.length + 1));

  test('has two stages on one small base of an exact version that the package allows', () => {
    const bases = all.filter((line) => line.startsWith('FROM ')).map((line) => line.split(' ')[1] ?? '');
    assert.equal(bases.length, 2);
    assert.equal(new Set(bases).size, 1);
    assert.match(bases[0] ?? '', /^node:\d+\.\d+\.\d+-[a-z]+-slim$/);
    const major = Number(/\d+/.exec(bases[0] ?? '')?.[0]);
    assert.ok(major >= Number(/\d+/.exec(packageJson.engines.node)?.[0]));
  });

  test('runs as a number that is not root, keeps mail in a volume, and becomes node itself', () => {
    assert.deepEqual(words('USER'), ['1000:1000']);
    assert.deepEqual(words('VOLUME'), ['/var/lib/postern']);
    assert.ok(last.indexOf('USER 1000:1000') < last.findIndex((line) => line.startsWith('VOLUME')));
    assert.deepEqual(words('ENTRYPOINT'), ['["postern"]']);
    const command = JSON.parse(words('CMD')[0] ?? '') as readonly string[];
    assert.deepEqual(command, ['start', '--config', '/etc/postern/postern.json5', '--data', '/var/lib/postern']);
    assert.ok(!all.some((line) => /^ADD |--chown=root|chmod 777|password|secret|token/i.test(line)));
  });

  test('its health check is a program that node runs', () => {
    const health = /CMD (\[.*\])$/.exec(words('HEALTHCHECK')[0] ?? '')?.[1];
    const [program, flag, script = ''] = JSON.parse(health ?? '') as readonly string[];
    assert.deepEqual([program, flag], ['node', '-e']);
    // Nobody listens there, or somebody who is not well: either way it ends with 1.
    const closed = spawnSync(process.execPath, ['-e', script.replace(':8080', ':9')], { timeout: 10_000 });
    assert.equal(closed.status, 1);
  });

  test('copies what is there, and the context has all that the build and the package need', () => {
    const allowed = readFileSync(join(projectRoot, '.dockerignore'), 'utf8').split('\n');
    assert.equal(
      allowed.find((line) => line !== '' && !line.startsWith('#')),
      '*',
      'everything else stays out',
    );
    const isAllowed = (name: string) =>
      allowed.includes(`!${name.replace(/(?<!^test)\/.*/, '')}`) ||
      (name.endsWith('.mjs') && allowed.includes('!*.mjs'));
    const copied = all
      .filter((line) => /^COPY (?!--from)/.test(line))
      .flatMap((line) => line.split(' ').slice(1, -1))
      .filter((name) => name !== '.');
    for (const name of copied) assert.ok(existsSync(join(projectRoot, name)), name);
    const packed = packageJson.files.filter((name) => !name.startsWith('dist/'));
    const needed = [
      ...packed,
      'core',
      'plugins',
      'test/kit',
      'tsconfig.json',
      'build.mjs',
      'declarations.mjs',
      'package-lock.json',
    ];
    assert.deepEqual(
      needed.filter((name) => !isAllowed(name)),
      [],
    );
    for (const secret of ['data', '.git', 'node_modules', 'postern.json5', '.env'])
      assert.ok(!isAllowed(secret), secret);
  });

  test('the initial configuration is valid, and demands a password', async () => {
    const config = join(deployFolder, 'docker', 'postern.json5');
    const { settings } = await configure({ config }, { cwd: projectRoot, env: {}, print: () => undefined });
    const exposed = words('EXPOSE')[0]?.split(' ').map(Number);
    assert.deepEqual([settings.smtp.listeners[0]?.port, settings.http.port], exposed);
    assert.equal(settings.http.accounts, undefined);
    assert.equal(settings.http.host, '0.0.0.0');
  });
});

interface Service {
  readonly image?: string;
  readonly build?: { readonly context: string; readonly dockerfile: string };
  readonly volumes?: readonly string[];
  readonly secrets?: readonly string[];
  readonly ports?: readonly string[];
  readonly read_only?: boolean;
  readonly cap_drop?: readonly string[];
  readonly stop_grace_period?: string;
}
interface Compose {
  readonly services: Readonly<Record<string, Service>>;
  readonly volumes: Readonly<Record<string, unknown>>;
  readonly secrets: Readonly<Record<string, { readonly file: string }>>;
}

const toJson = 'import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)';
const hasYaml = spawnSync('python3', ['-c', 'import yaml']).status === 0;
function skipWithoutYaml(): string | false {
  if (hasYaml) return false;
  const sentence = 'python3-yaml is not installed, so no YAML is read.';
  if (process.env['CI'] !== undefined && process.env['CI'] !== '') throw new Error(sentence);
  return sentence;
}
const yaml = (name: string): unknown =>
  JSON.parse(spawnSync('python3', ['-c', toJson], { input: read(name), encoding: 'utf8' }).stdout);

describe('the compose file, without a daemon', { skip: skipWithoutYaml() }, () => {
  test('each mount, secret and volume is there, and each image has a version', () => {
    const { services, volumes, secrets } = yaml('compose.yml') as Compose;
    for (const [name, service] of Object.entries(services)) {
      if (service.build === undefined) assert.match(service.image ?? '', /:v?\d+\.\d+\.\d+$/, name);
      for (const mount of service.volumes ?? []) {
        const [source = ''] = mount.split(':');
        if (!source.startsWith('.')) assert.ok(source in volumes, mount);
        else {
          assert.ok(existsSync(join(deployFolder, source)), mount);
          assert.match(mount, /:ro$/);
        }
      }
      for (const secret of service.secrets ?? []) assert.ok(secret in secrets, secret);
    }
    const { postern } = services;
    assert.ok(existsSync(join(deployFolder, postern?.build?.context ?? '', postern?.build?.dockerfile ?? '')));
    assert.equal(postern?.read_only, true);
    assert.deepEqual(postern?.cap_drop, ['ALL']);
    assert.ok(Number.parseInt(postern?.stop_grace_period ?? '') > 20, 'longer than shutdownSeconds');
    // Pages and charts are for this machine; mail is for all.
    const ports = Object.values(services).flatMap((service) => service.ports ?? []);
    assert.deepEqual(
      ports.filter((port) => !port.startsWith('127.0.0.1:')),
      ['25:2525'],
    );
    const ignored = readFileSync(join(projectRoot, '.gitignore'), 'utf8');
    for (const { file } of Object.values(secrets))
      assert.ok(ignored.includes(`deploy/${dirname(file).slice(2)}/`), file);
  });

  test('its server is configured with the secrets, names and accounts that the others use', async (t) => {
    const { secrets } = yaml('compose.yml') as Compose;
    const scrape = yaml('compose/prometheus.yml') as {
      scrape_configs: [
        {
          job_name: string;
          basic_auth: { username: string; password_file: string };
          static_configs: [{ targets: [string] }];
        },
      ];
    };
    const folder = await temporaryFolder(t);
    for (const name of Object.keys(secrets)) await writeFile(join(folder, name), `secret of ${name}\n`);
    const text = read('compose/postern.json5').replaceAll('/run/secrets', folder);
    await writeFile(join(folder, 'postern.json5'), text);
    const { settings } = await configure({}, { cwd: folder, env: {}, print: () => undefined });
    const [{ job_name, basic_auth, static_configs }] = scrape.scrape_configs;
    const reader = settings.http.accounts?.find(({ username }) => username === basic_auth.username);
    assert.equal(reader?.role, 'read');
    assert.equal(reader.password, `secret of ${basic_auth.password_file.replace('/run/secrets/', '')}`);
    assert.ok(settings.http.publicUrls.includes(`http://${static_configs[0].targets[0]}`), 'Host is checked');
    assert.match(read('prometheus-alerts.yml'), new RegExp(`up\\{job="${job_name}"\\}`));
  });

  test('Grafana finds the dashboard and its data source', () => {
    const { services } = yaml('compose.yml') as Compose;
    const targets = services['grafana']?.volumes?.map((mount) => mount.split(':')[1] ?? '') ?? [];
    const { providers } = yaml('compose/grafana/dashboards.yml') as { providers: [{ options: { path: string } }] };
    assert.ok(targets.some((target) => target.startsWith(`${providers[0].options.path}/`) && target.endsWith('.json')));
    const { datasources } = yaml('compose/grafana/datasource.yml') as {
      datasources: [{ type: string; isDefault: boolean }];
    };
    assert.deepEqual([datasources[0].type, datasources[0].isDefault], ['prometheus', true]);
    assert.equal(
      (JSON.parse(read('grafana-dashboard.json')) as { templating: { list: [{ query: string }] } }).templating.list[0]
        .query,
      'prometheus',
    );
  });

  test('promtool reads the scrape configuration with its rules', { skip: skipWithout('promtool') }, async (t) => {
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, 'rules'));
    await cp(join(deployFolder, 'prometheus-alerts.yml'), join(folder, 'rules', 'postern.yml'));
    const text = await readFile(join(deployFolder, 'compose', 'prometheus.yml'), 'utf8');
    await writeFile(join(folder, 'prometheus.yml'), text.replaceAll('/etc/prometheus', folder));
    const check = (name: string) =>
      spawnSync(findPeer('promtool') ?? '', ['check', 'config', join(folder, name)], { encoding: 'utf8' });
    const { status, stdout, stderr } = check('prometheus.yml');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /[1-9]\d* rules found/);
    await writeFile(join(folder, 'broken.yml'), text.replace('scrape_configs', 'scrapes'));
    assert.equal(check('broken.yml').status, 1);
  });

  test('every YAML file of the folder can be read', () => {
    const files = readdirSync(deployFolder, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.yml'),
    );
    assert.ok(files.length >= 5);
    for (const name of files) assert.equal(typeof yaml(name), 'object', name);
  });
});
