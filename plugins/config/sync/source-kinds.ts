import type {
  ConfigurationSource,
  ConfigurationSources,
  SourceRequest,
} from '../../../core/contracts/configuration-source.js';
import { problem } from '../../../core/problem.js';
import { FolderSource } from './folder-source.js';
import { WebSource } from './web-source.js';

type Open = (request: SourceRequest) => ConfigurationSource;

/** Kinds of sources: folder, URL, and those of plugins. */
export class SourceKinds implements ConfigurationSources {
  readonly #kinds = new Map<string, Open>([
    ['http', (request) => new WebSource(request)],
    ['https', (request) => new WebSource(request)],
    ['file', ({ address, folder }) => new FolderSource({ address: pathOf(address), folder })],
  ]);

  add(scheme: string, open: Open): () => void {
    if (!/^[a-z][a-z0-9]{1,31}$/.test(scheme) || this.#kinds.has(scheme)) {
      throw new Error(`a source kind ${scheme} cannot be added: it is no scheme, or there is one already`);
    }
    this.#kinds.set(scheme, open);
    return () => void this.#kinds.delete(scheme);
  }

  /** @throws Problem `invalid` for an address of an unknown kind */
  open(request: SourceRequest): ConfigurationSource {
    const scheme = /^([a-z][a-z0-9]+):/.exec(request.address)?.[1];
    if (scheme === undefined) return new FolderSource(request);
    const open = this.#kinds.get(scheme);
    if (open === undefined) throw problem('invalid', `There is no source of the kind ${scheme}: no plugin offers it.`);
    try {
      return open(request);
    } catch (cause) {
      throw problem('invalid', { detail: 'The address of the source cannot be read.', cause });
    }
  }
}

function pathOf(address: string): string {
  return decodeURIComponent(new URL(address).pathname);
}
