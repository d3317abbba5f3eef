import { readdirSync, readFileSync } from 'node:fs';
import { isAbsolute, join, sep } from 'node:path';
import { unreadableFolder } from '../disk/fault.js';
import { startError } from '../problem.js';

export interface ViewSource {
  readonly src: string;
  /** Absolute. */
  readonly path: string;
}

const mostBytes = 4 * 1024 * 1024;

/**
 * The views below the folder of a plugin, by their names with `/`.
 *
 * @throws start error for a folder that cannot be used
 */
export function readPluginViews(plugin: string, folder: string): ReadonlyMap<string, ViewSource> {
  const owner = `Plugin ${plugin}, views`;
  if (plugin === 'macros')
    throw startError(`${owner}: macros/ is the server's own: choose another name for the plugin.`);
  return readViews(owner, folder);
}

/** @throws start error, which begins with the owner, for a folder that cannot be used */
export function readViews(owner: string, folder: string): ReadonlyMap<string, ViewSource> {
  const refuse = (sentence: string, cause?: unknown) => startError(`${owner}: ${sentence}`, cause);
  if (!isAbsolute(folder)) throw refuse(`${folder} is not an absolute path; join(import.meta.dirname, 'views') is.`);
  let bytes = 0;
  const read = (name: string): readonly [string, ViewSource] => {
    const path = join(folder, name);
    const src = readFileSync(path, 'utf8');
    bytes += src.length;
    if (bytes > mostBytes) throw refuse(`${folder} holds more than ${mostBytes / 1024 ** 2} MiB.`);
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
