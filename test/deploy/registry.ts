import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { atEnd, type Ending } from '../support/ending.js';
import { run } from './package-tarball.js';

/** A registry that has one package, ours, and sends everybody elsewhere for the others. */
export class Registry {
  /** `http://127.0.0.1:12345` */
  readonly url: string;

  private constructor(url: string) {
    this.url = url;
  }

  static async start(test: Ending, tarball: string): Promise<Registry> {
    const upstream = (await run('npm', ['config', 'get', 'registry'])).stdout.trim().replace(/\/$/, '');
    const { stdout } = await run('tar', [
      '--extract',
      '--gzip',
      '--to-stdout',
      `--file=${tarball}`,
      'package/package.json',
    ]);
    const own = JSON.parse(stdout) as { readonly name: string; readonly version: string };
    const bytes = await readFile(tarball);
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const integrity = `sha512-${createHash('sha512').update(bytes).digest('base64')}`;
    // A registry looks into what is published, and tells npm that there is a shrinkwrap.
    const version = { ...own, _hasShrinkwrap: true, dist: { tarball: `${url}/tarball.tgz`, integrity } };
    const document = JSON.stringify({
      name: own.name,
      'dist-tags': { latest: own.version },
      versions: { [own.version]: version },
    });
    answer(
      server,
      upstream,
      new Map<string, Buffer | string>([
        [`/${own.name}`, document],
        ['/tarball.tgz', bytes],
      ]),
    );
    atEnd(test, () => {
      server.closeAllConnections();
      server.close();
    });
    return new Registry(url);
  }
}

function answer(server: Server, upstream: string, contents: ReadonlyMap<string, Buffer | string>): void {
  server.on('request', (request, response) => {
    const content = contents.get(request.url ?? '');
    if (content !== undefined) {
      response.end(content);
      return;
    }
    response.writeHead(307, { Location: `${upstream}${request.url ?? ''}` });
    response.end();
  });
}
