import { existsSync } from 'node:fs';
import { join } from 'node:path';
import nunjucks from 'nunjucks';
import type { Clock } from '../clock.js';
import { startError } from '../start-error.js';
import { readPluginViews, type ViewSource } from './plugin-views.js';
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
  readonly #places: string[];
  readonly #foreign = new Map<string, ReadonlyMap<string, ViewSource>>();
  readonly #loaders: readonly CachingLoader[];

  constructor({ root, overrides, asset, clock, strict }: ViewsInput) {
    this.#places = overrides === undefined ? [root] : [overrides, root];
    const files = this.#places.map((place) => new nunjucks.FileSystemLoader(place));
    // A plugin that takes the place of a built-in one brings views of the same names.
    this.#loaders = [...files.slice(0, -1), { getSource: (name) => this.#sourceOf(name) }, ...files.slice(-1)];
    this.#environment = new nunjucks.Environment([...this.#loaders], {
      autoescape: true,
      throwOnUndefined: strict ?? false,
      trimBlocks: true,
      lstripBlocks: true,
    });
    this.#environment.addGlobal('asset', asset);
    for (const [name, filter] of Object.entries(viewFilters(clock))) this.#environment.addFilter(name, filter);
  }

  /**
   * Reads and compiles the views of a plugin. What is returned puts them into force, and then returns the undo: what is edited
   * on the disk counts when the plugin is loaded again, and what is broken is known before anybody asks for it.
   *
   * @throws start error for a folder or a view that cannot be used
   */
  prepare(plugin: string, folder: string): () => () => void {
    const sources = readPluginViews(plugin, folder);
    for (const [view, source] of sources) this.#refuseBroken(plugin, view, source);
    return () => {
      this.#forgetCompiled(plugin);
      this.#foreign.set(plugin, sources);
      return () => {
        this.#foreign.delete(plugin);
        this.#forgetCompiled(plugin);
      };
    };
  }

  /** The template that an endpoint of the plugin means, or a start error that names it. */
  resolve(plugin: string, view: string): string {
    const found = [`${plugin}/${view}`, view].find(
      (name) => this.#ofPlugin(name) !== null || this.#places.some((place) => existsSync(join(place, name))),
    );
    if (found === undefined) throw startError(`Plugin ${plugin} names the view ${view}, which is not there.`);
    return found;
  }

  render(template: string, model: object): string {
    return this.#environment.render(template, model);
  }

  #refuseBroken(plugin: string, view: string, { src, path }: ViewSource): void {
    try {
      void new nunjucks.Template(src, this.#environment, path, true);
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      const [, line, reason = message] = /\[Line (\d+), Column \d+\]\s*([\s\S]*)/.exec(message) ?? [];
      const place = line === undefined ? view : `${view}:${line}`;
      throw startError(`Plugin ${plugin}, view ${place}: ${reason.trim()}`, cause);
    }
  }

  #forgetCompiled(plugin: string): void {
    for (const { cache = {} } of this.#loaders) {
      for (const name of Object.keys(cache)) if (name.startsWith(`${plugin}/`)) cache[name] = undefined;
    }
  }

  #sourceOf(name: string): nunjucks.LoaderSource {
    const source = this.#ofPlugin(name);
    // nunjucks takes null for "not here"; its types do not say so.
    return (source === null ? null : { ...source, noCache: false }) as nunjucks.LoaderSource;
  }

  #ofPlugin(name: string): ViewSource | null {
    const slash = name.indexOf('/');
    return this.#foreign.get(name.slice(0, slash))?.get(name.slice(slash + 1)) ?? null;
  }
}

/** What nunjucks has compiled from a loader it keeps there. */
interface CachingLoader extends nunjucks.ILoader {
  cache?: Record<string, unknown>;
}
