import { existsSync, readdirSync } from 'node:fs';
import { isAbsolute, join, sep } from 'node:path';
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
  readonly #loaders: readonly CachingLoader[];

  constructor({ root, overrides, asset, clock, strict }: ViewsInput) {
    this.#places = overrides === undefined ? [root] : [overrides, root];
    const files = this.#places.map((place) => new nunjucks.FileSystemLoader(place));
    // A plugin that takes the place of a built-in one brings views of the same names.
    this.#loaders = [...files.slice(0, -1), { getSource: (name) => this.#ofPlugin(name) }, ...files.slice(-1)];
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
   * Views of that plugin come from a folder of its own; returns the undo. All are compiled now: what is edited later counts
   * when the plugin is loaded again, and what is broken is known before anybody asks for it.
   *
   * @throws start error for a folder or a view that cannot be used
   */
  add(plugin: string, folder: string): () => void {
    if (plugin === 'macros') throw startError("A plugin called macros cannot have views: macros/ is the server's own.");
    const views = viewsBelow(plugin, folder);
    const forget = () => {
      this.#folders.delete(plugin);
      this.#foreign.delete(plugin);
      this.#forgetCompiled(plugin);
    };
    this.#forgetCompiled(plugin);
    this.#folders.set(plugin, new nunjucks.FileSystemLoader(folder));
    this.#foreign.set(plugin, folder);
    try {
      for (const view of views) this.#compile(plugin, view);
    } catch (error) {
      forget();
      throw error;
    }
    return forget;
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

  #compile(plugin: string, view: string): void {
    try {
      this.#environment.getTemplate(`${plugin}/${view}`, true);
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

  #ofPlugin(name: string): nunjucks.LoaderSource {
    const slash = name.indexOf('/');
    const loader = this.#folders.get(name.slice(0, slash));
    // nunjucks takes null for "not here"; its types do not say so.
    return (loader?.getSource(name.slice(slash + 1)) ?? null) as nunjucks.LoaderSource;
  }
}

/** What nunjucks has compiled from a loader it keeps there. */
interface CachingLoader extends nunjucks.ILoader {
  cache?: Record<string, unknown>;
}

/** Names of the views below the folder of a plugin, with `/`. */
function viewsBelow(plugin: string, folder: string): readonly string[] {
  const refuse = (sentence: string, cause?: unknown) => startError(`Plugin ${plugin}, views: ${sentence}`, cause);
  if (!isAbsolute(folder)) throw refuse(`${folder} is not an absolute path; join(import.meta.dirname, 'views') is.`);
  try {
    const names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
    return names.filter((name) => name.endsWith('.njk')).map((name) => name.replaceAll(sep, '/'));
  } catch (cause) {
    throw refuse(`${folder} is not a folder that can be read.`, cause);
  }
}
