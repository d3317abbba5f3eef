import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { atEnd, type Ending } from '../support/ending.js';
import { InstalledPackages } from './installed-packages.js';
import { run } from './package-tarball.js';

interface Own {
  readonly name: string;
  readonly version: string;
}

/** A registry that has our package and all that it needs, and needs no other. */
export class Registry {
  /** `http://127.0.0.1:12345` */
  readonly url: string;
  readonly #own: Own;
  readonly #tarball: Buffer;
  readonly #others: InstalledPackages;

  private constructor(url: string, own: Own, tarball: Buffer, others: InstalledPackages) {
    this.url = url;
    this.#own = own;
    this.#tarball = tarball;
    this.#others = others;
  }

  static async start(test: Ending, tarball: string): Promise<Registry> {
    const words = ['--extract', '--gzip', '--to-stdout', `--file=${tarball}`, 'package/package.json'];
    const own = JSON.parse((await run('tar', words)).stdout) as Own;
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const registry = new Registry(url, own, await readFile(tarball), await InstalledPackages.find());
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      registry.#answer(request, response).catch((error: unknown) => response.destroy(error as Error));
    });
    atEnd(test, () => {
      server.closeAllConnections();
      server.close();
    });
    return registry;
  }

  async #answer({ url = '' }: IncomingMessage, response: ServerResponse): Promise<void> {
    const [, name = '', version] = /^\/((?:@[^/]+\/)?[^/]+)(?:\/-\/(.+)\.tgz)?$/.exec(decodeURIComponent(url)) ?? [];
    if (version === undefined) {
      const document = name === this.#own.name ? this.#ownDocument() : await this.#document(name);
      if (document === undefined) response.writeHead(404);
      response.end(document && JSON.stringify(document));
    } else if (name === this.#own.name) response.end(this.#tarball);
    else this.#others.tarball(name, version)?.pipe(response);
  }

  #ownDocument(): object {
    const { name, version } = this.#own;
    const integrity = `sha512-${createHash('sha512').update(this.#tarball).digest('base64')}`;
    const published = { ...this.#own, dist: { tarball: this.#place(name, version), integrity } };
    return { name, 'dist-tags': { latest: version }, versions: { [version]: published } };
  }

  async #document(name: string): Promise<object | undefined> {
    const manifests = await this.#others.manifests(name);
    if (manifests === undefined) return undefined;
    const versions = [...manifests].map(([version, manifest]) => {
      return [version, { ...manifest, dist: { tarball: this.#place(name, version) } }] as const;
    });
    return { name, 'dist-tags': { latest: versions[0]?.[0] }, versions: Object.fromEntries(versions) };
  }

  readonly #place = (name: string, version: string): string => `${this.url}/${name}/-/${version}.tgz`;
}
