import { existsSync } from 'node:fs';
import { join } from 'node:path';
import nunjucks from 'nunjucks';
import type { Clock } from '../clock.js';
import { startError } from '../start-error.js';
import { viewFilters } from './view-filters.js';

export interface ViewsInput {
  /** Folder of the shell's own views, with one folder for each built-in plugin. */
  readonly root: string;
  /** Searched before `root`: single templates that an operator replaces. */
  readonly overrides?: string | undefined;
  readonly asset: (name: string) => string;
  readonly clock: Clock;
  /** A missing value is an error instead of an empty text; for tests. */
  readonly strict?: boolean | undefined;
}

/** Renders templates. Views of a plugin from elsewhere are found below the name of the plugin. */
export class Views {
  readonly #environment: nunjucks.Environment;
  readonly #folders = new Map<string, nunjucks.FileSystemLoader>();
  readonly #places: string[];
  readonly #foreign = new Map<string, string>();

  constructor({ root, overrides, asset, clock, strict }: ViewsInput) {
    this.#places = overrides === undefined ? [root] : [overrides, root];
    const loaders = [
      new nunjucks.FileSystemLoader(this.#places),
      { getSource: (name: string) => this.#ofPlugin(name) },
    ];
    this.#environment = new nunjucks.Environment(loaders, {
      autoescape: true,
      throwOnUndefined: strict ?? false,
      trimBlocks: true,
      lstripBlocks: true,
    });
    this.#environment.addGlobal('asset', asset);
    for (const [name, filter] of Object.entries(viewFilters(clock))) this.#environment.addFilter(name, filter);
  }

  /** Views of that plugin come from a folder of its own; returns the undo. */
  add(plugin: string, folder: string): () => void {
    this.#folders.set(plugin, new nunjucks.FileSystemLoader(folder));
    this.#foreign.set(plugin, folder);
    return () => {
      this.#folders.delete(plugin);
      this.#foreign.delete(plugin);
    };
  }

  /** The template that an endpoint of the plugin means, or a start error that names it. */
  resolve(plugin: string, view: string): string {
    const folder = this.#foreign.get(plugin);
    const candidates = [`${plugin}/${view}`, view];
    const found = candidates.find(
      (name) =>
        this.#places.some((place) => existsSync(join(place, name))) ||
        (folder !== undefined &&
          name.startsWith(`${plugin}/`) &&
          existsSync(join(folder, name.slice(plugin.length + 1)))),
    );
    if (found === undefined) throw startError(`Plugin ${plugin} names the view ${view}, which is not there.`);
    return found;
  }

  render(template: string, model: object): string {
    return this.#environment.render(template, model);
  }

  #ofPlugin(name: string): nunjucks.LoaderSource {
    const slash = name.indexOf('/');
    const loader = this.#folders.get(name.slice(0, slash));
    // nunjucks takes null for "not here"; its types do not say so.
    return (loader?.getSource(name.slice(slash + 1)) ?? null) as nunjucks.LoaderSource;
  }
}
