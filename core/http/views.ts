import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { isAbsolute, join, sep } from 'node:path';
import nunjucks from 'nunjucks';
import type { Clock } from '../clock.js';
import { unreadableFolder } from '../disk/fault.js';
import { startError } from '../problem.js';
import { KeptParts } from './kept-parts.js';
import { formatAgo, formatBytes, formatDuration, formatNumber, formatTime, pluralize } from '../text/format.js';

/** Renders templates. Views of a plugin from elsewhere are found below the name of the plugin. */
export class Views {
  readonly #environment: nunjucks.Environment;
  readonly #kept = new KeptParts();
  readonly #root: string;
  /** What an operator put in the place of ours, by the name of the view. */
  #overrides: ReadonlyMap<string, ViewSource> = new Map();
  readonly #pluginSources = new Map<string, ReadonlyMap<string, ViewSource>>();
  readonly #loaders: readonly CachingLoader[];

  constructor({
    root,
    asset,
    clock,
    strict,
  }: {
    /** Folder of the shell's own views, with one folder for each built-in plugin. */
    readonly root: string;
    readonly asset: (name: string) => string;
    readonly clock: Clock;
    /** A missing value is an error instead of an empty text; for tests. */
    readonly strict?: boolean | undefined;
  }) {
    this.#root = root;
    // A plugin that takes the place of a built-in one brings views of the same names.
    this.#loaders = [
      { getSource: (name) => loaderSource(this.#overrides.get(name)) },
      { getSource: (name) => loaderSource(this.#ofPlugin(name)) },
      new nunjucks.FileSystemLoader(root),
    ];
    this.#environment = new nunjucks.Environment([...this.#loaders], {
      autoescape: true,
      throwOnUndefined: strict ?? false,
      trimBlocks: true,
      lstripBlocks: true,
    });
    this.#environment.addExtension('keep', this.#kept);
    this.#environment.addGlobal('asset', asset);
    this.#environment.addGlobal('now', () => new Date(clock.now()).toISOString());
    for (const [name, filter] of Object.entries(viewFilters(clock))) this.#environment.addFilter(name, filter);
  }

  /**
   * Reads and compiles the views of a plugin. What is returned puts them into force, and then returns the undo: what is
   * edited on the disk counts when the plugin is loaded again, and what is broken is known before anybody asks for it.
   *
   * @throws start error for a folder or a view that cannot be used
   */
  prepare(plugin: string, folder: string): () => () => void {
    const sources = readPluginViews(plugin, folder);
    for (const [view, source] of sources) this.#refuseBroken(`Plugin ${plugin}`, view, source);
    return () => {
      this.#forgetCompiled(`${plugin}/`);
      this.#pluginSources.set(plugin, sources);
      return () => {
        this.#pluginSources.delete(plugin);
        this.#forgetCompiled(`${plugin}/`);
      };
    };
  }

  /**
   * Reads and compiles single views that an operator puts in the place of ours; what is returned puts them into force,
   * and then returns the undo.
   *
   * @throws start error for a folder or a view that cannot be used
   */
  prepareOverrides(folder: string | undefined): () => () => void {
    const next = folder === undefined ? new Map<string, ViewSource>() : readViews('http.viewOverrides', folder);
    for (const [view, source] of next) this.#refuseBroken('http.viewOverrides', view, source);
    return () => {
      const old = this.#overrides;
      const use = (views: ReadonlyMap<string, ViewSource>): void => {
        this.#overrides = views;
        this.#forgetCompiled('');
      };
      use(next);
      return () => use(old);
    };
  }

  /** The template that an endpoint of the plugin means, or a start error that names it. */
  resolve(plugin: string, view: string): string {
    const found = [`${plugin}/${view}`, view].find(
      (name) => this.#overrides.has(name) || this.#ofPlugin(name) !== undefined || existsSync(join(this.#root, name)),
    );
    if (found === undefined) throw startError(`Plugin ${plugin} names the view ${view}, which is not there.`);
    return found;
  }

  render(template: string, model: object): string | Buffer {
    return this.#kept.within(() => this.#environment.render(template, model));
  }

  #refuseBroken(owner: string, view: string, { src, path }: ViewSource): void {
    try {
      void new nunjucks.Template(src, this.#environment, path, true);
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      const [, line, reason = message] = /\[Line (\d+), Column \d+\]\s*([\s\S]*)/.exec(message) ?? [];
      const place = line === undefined ? view : `${view}:${line}`;
      // After "token:" the log would mask it as a secret.
      const sentence = reason.trim().replace(/^unexpected token: /, 'unexpected ');
      throw startError(`${owner}, view ${place}: ${sentence}`, cause);
    }
  }

  #forgetCompiled(prefix: string): void {
    for (const { cache = {} } of this.#loaders) {
      for (const name of Object.keys(cache)) if (name.startsWith(prefix)) cache[name] = undefined;
    }
  }

  #ofPlugin(name: string): ViewSource | undefined {
    const slash = name.indexOf('/');
    return this.#pluginSources.get(name.slice(0, slash))?.get(name.slice(slash + 1));
  }
}

/** nunjucks takes null for "not here"; its types do not say so. */
function loaderSource(source: ViewSource | undefined): nunjucks.LoaderSource {
  return (source === undefined ? null : { ...source, noCache: false }) as nunjucks.LoaderSource;
}

/** What nunjucks has compiled from a loader it keeps there. */
interface CachingLoader extends nunjucks.ILoader {
  cache?: Record<string, unknown>;
}

interface ViewSource {
  readonly src: string;
  /** Absolute. */
  readonly path: string;
}

const maxBytes = 4 * 1024 * 1024;

/**
 * The views below the folder of a plugin, by their names with `/`.
 *
 * @throws start error for a folder that cannot be used
 */
function readPluginViews(plugin: string, folder: string): ReadonlyMap<string, ViewSource> {
  const owner = `Plugin ${plugin}, views`;
  if (plugin === 'macros')
    throw startError(`${owner}: macros/ is the server's own: choose another name for the plugin.`);
  return readViews(owner, folder);
}

/** @throws start error, which begins with the owner, for a folder that cannot be used */
function readViews(owner: string, folder: string): ReadonlyMap<string, ViewSource> {
  const refuse = (sentence: string, cause?: unknown) => startError(`${owner}: ${sentence}`, cause);
  if (!isAbsolute(folder)) throw refuse(`${folder} is not an absolute path; join(import.meta.dirname, 'views') is.`);
  let bytes = 0;
  const read = (name: string): readonly [string, ViewSource] => {
    const path = join(folder, name);
    const src = readFileSync(path, 'utf8');
    bytes += src.length;
    if (bytes > maxBytes) throw refuse(`${folder} holds more than ${maxBytes / 1024 ** 2} MiB.`);
    return [name.replaceAll(sep, '/'), { src, path }];
  };
  return new Map(namesBelow(folder, refuse).map(read));
}

function namesBelow(folder: string, refuse: (sentence: string, cause: unknown) => Error): readonly string[] {
  try {
    return readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.njk'));
  } catch (cause) {
    throw refuse(unreadableFolder(folder, cause), cause);
  }
}

/** A link target as it is, when it can only lead to a page or a mail program; else `#`. */
export function safeUrl(url: unknown): string {
  const text = typeof url === 'string' ? url : '';
  // What browsers skip inside a scheme must not hide one.
  const bare = text.replace(/[\p{Cc}\s]/gu, '');
  const scheme = /^([^/?#:]*):/.exec(bare)?.[1]?.toLowerCase();
  if (scheme === undefined) return bare.startsWith('//') || bare.startsWith('/\\') ? '#' : text;
  return ['http', 'https', 'mailto'].includes(scheme) ? text : '#';
}

const words: Readonly<Record<string, readonly string[]>> = {
  good: ['up', 'ok', 'delivered', 'enabled', 'yes', 'accepted', 'running', 'public'],
  info: ['queued', 'active', 'info', 'get', 'read', 'unread'],
  warn: ['degraded', 'deferred', 'stale', 'warn', 'restart required', 'put', 'patch', 'operate'],
  bad: ['down', 'bounced', 'expired', 'error', 'fatal', 'failed', 'refused', 'delete', 'disabled', 'admin'],
};
const tones = new Map(Object.entries(words).flatMap(([tone, list]) => list.map((word) => [word, tone] as const)));

/** Tone of a state word, `neutral` when it has none. */
const toneOf = (word: unknown): string => tones.get(String(word).toLowerCase()) ?? 'neutral';

/** The filters of every view, by name. */
function viewFilters(clock: Clock): Readonly<Record<string, (value: never, ...more: never[]) => string>> {
  return {
    ago: (iso: unknown) => formatAgo(iso, clock.now()),
    /** How old messages are: a key of a kept part that shows it. */
    ages: (rows: readonly { readonly receivedAt: unknown }[]) =>
      rows.map(({ receivedAt }) => formatAgo(receivedAt, clock.now())).join(),
    fullTime: formatTime,
    bytes: formatBytes,
    number: formatNumber,
    counted: pluralize,
    duration: formatDuration,
    url: safeUrl,
    tone: toneOf,
  };
}
