import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { isRoot } from '../support/account.js';
import { selfSigned } from '../support/certificate.js';
import { atEnd, type Ending } from '../support/ending.js';
import { freePort } from '../support/free-port.js';
import { findPeer } from '../support/peers.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { deployFolder } from './unit-file.js';

/** The name that the snippets are written for. */
export const siteName = 'mail.example.org';

/** What tells a snippet apart from what runs in a test: places, and nothing of what it does. */
export interface ProxyPlaces {
  readonly folder: string;
  readonly httpPort: number;
  readonly httpsPort: number;
  readonly serverPort: number;
}

export interface ProxyKind {
  readonly program: 'nginx' | 'caddy' | 'haproxy';
  readonly snippet: string;
  /** Files to write, by name; `main` is the configuration. */
  readonly configure: (snippet: string, places: ProxyPlaces) => Readonly<Record<string, string>>;
  readonly words: (folder: string) => readonly string[];
}

/** Replaces; what is to be replaced must be there. */
function inPlace(text: string, changes: readonly (readonly [old: string, now: string])[]): string {
  return changes.reduce((done, [old, now]) => {
    if (!done.includes(old)) throw new Error(`the snippet has no ${JSON.stringify(old)}`);
    return done.replaceAll(old, now);
  }, text);
}

const nginxPaths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];

export const nginx: ProxyKind = {
  program: 'nginx',
  snippet: 'nginx.conf',
  configure: (snippet, { folder, httpPort, httpsPort, serverPort }) => ({
    main: [
      ...(isRoot() ? ['user root;'] : []),
      'daemon off;',
      `pid ${join(folder, 'pid')};`,
      'error_log stderr;',
      'events {}',
      'http {',
      'access_log off;',
      ...nginxPaths.map((name) => `${name}_temp_path ${join(folder, name)};`),
      `include ${join(folder, 'site')};`,
      '}',
      '',
    ].join('\n'),
    site: inPlace(snippet, [
      ['  listen [::]:80;\n', ''],
      ['  listen [::]:443 ssl http2;\n', ''],
      ['listen 80;', `listen 127.0.0.1:${httpPort};`],
      ['listen 443 ', `listen 127.0.0.1:${httpsPort} `],
      ['127.0.0.1:8080', `127.0.0.1:${serverPort}`],
      [`/etc/letsencrypt/live/${siteName}/fullchain.pem`, join(folder, 'cert.pem')],
      [`/etc/letsencrypt/live/${siteName}/privkey.pem`, join(folder, 'key.pem')],
    ]),
  }),
  words: (folder) => ['-e', 'stderr', '-p', folder, '-c', join(folder, 'main')],
};

export const caddy: ProxyKind = {
  program: 'caddy',
  snippet: 'Caddyfile',
  configure: (snippet, { folder, httpPort, httpsPort, serverPort }) => ({
    main: inPlace(snippet, [
      [
        `\n${siteName} {\n`,
        `\n{\n\tadmin off\n\thttp_port ${httpPort}\n\thttps_port ${httpsPort}\n\tdefault_bind 127.0.0.1\n}\n` +
          `${siteName} {\n\ttls ${join(folder, 'cert.pem')} ${join(folder, 'key.pem')}\n`,
      ],
      ['127.0.0.1:8080', `127.0.0.1:${serverPort}`],
    ]),
  }),
  words: (folder) => ['run', '--adapter', 'caddyfile', '--config', join(folder, 'main')],
};

/** Its one door is `httpsPort`. */
export const haproxy: ProxyKind = {
  program: 'haproxy',
  snippet: 'haproxy.cfg',
  configure: (snippet, { httpsPort, serverPort }) => ({
    main: inPlace(snippet, [
      ['bind :25', `bind 127.0.0.1:${httpsPort}`],
      ['127.0.0.1:2525', `127.0.0.1:${serverPort}`],
    ]),
  }),
  words: (folder) => ['-db', '-f', join(folder, 'main')],
};

/** One of the proxies, with its snippet from `deploy/proxy`, in front of a server on loopback. */
export class ReverseProxy {
  readonly httpPort: number;
  readonly httpsPort: number;

  private constructor({ httpPort, httpsPort }: ProxyPlaces) {
    this.httpPort = httpPort;
    this.httpsPort = httpsPort;
  }

  /** Resolves when it listens; ended when the test ends. */
  static async start(test: Ending, kind: ProxyKind, serverPort: number): Promise<ReverseProxy> {
    const folder = await temporaryFolder(test);
    const places = { folder, httpPort: await freePort(), httpsPort: await freePort(), serverPort };
    const { key, cert } = selfSigned(siteName);
    const snippet = await readFile(join(deployFolder, 'proxy', kind.snippet), 'utf8');
    const files = { 'key.pem': key, 'cert.pem': cert, ...kind.configure(snippet, places) };
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
    await mkdir(join(folder, 'home'));
    const child = spawn(findPeer(kind.program) ?? '', kind.words(folder), {
      env: { HOME: join(folder, 'home') },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
    atEnd(test, () => end(child));
    await untilListening(places.httpsPort, () => {
      if (child.exitCode !== null) throw new Error(`${kind.program} does not start: ${said}`);
    });
    return new ReverseProxy(places);
  }
}

async function untilListening(port: number, look: () => void): Promise<void> {
  const until = performance.now() + 20_000;
  for (;;) {
    const socket = connect({ host: '127.0.0.1', port });
    const connected = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (connected) return;
    look();
    if (performance.now() > until) throw new Error(`nothing listens on port ${port}`);
    await pause(50);
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}
