import { type Dirent, readFileSync, readlinkSync } from 'node:fs';
import { mkdir, readdir, rename, rm, symlink } from 'node:fs/promises';
import { createHash } from 'node:crypto';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import type { LayerFile } from '../contracts/server.js';
import { nodeFiles } from '../disk/file-layer.js';
import { writeDurable } from '../disk/atomic.js';
import { folderSyncOf } from '../disk/folder.js';
import { uniqueId, uniqueIdPattern } from '../disk/id.js';
import { startError } from '../problem.js';

/** Folder of the layers in the data folder. */
export const layerFolderName = 'config';
const currentName = 'current';
const listName = 'applied.json';
const linkSuffix = '.link';

/** A version of the files, or a link to one. */
export function isOwnLayerEntry(entry: Dirent): boolean {
  const { name } = entry;
  if (entry.isDirectory()) return uniqueIdPattern.test(name);
  if (!entry.isSymbolicLink()) return false;
  return name === currentName || (name.endsWith(linkSuffix) && uniqueIdPattern.test(name.slice(0, -linkSuffix.length)));
}

/** `base.json5`, `servers/mail1.json5`: at most two folders deep, no hidden names, no `..`. */
export const layerFileName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}(\/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){0,2}$/;

const Applied = z.strictObject({
  /** When they were applied. */
  at: z.iso.datetime(),
  /** Their source, without secrets. */
  source: z.string(),
  /** The lowest layer first. */
  files: z.array(z.strictObject({ name: z.string().regex(layerFileName), layer: z.string(), sha256: z.string() })),
});
/** Record of the last applied layers, stored beside the files. */
export type AppliedLayers = z.output<typeof Applied>;

export interface LayerText extends LayerFile {
  readonly layer: string;
}

/** A layer as it is on disk: it may have been edited or removed. */
export interface StoredLayer {
  readonly name: string;
  readonly layer: string;
  /** Of the applied text. */
  readonly sha256: string;
  /** Undefined when the file is missing. */
  readonly text: string | undefined;
}

export const sha256Of = (text: string | Buffer): string => createHash('sha256').update(text).digest('hex');

/**
 * The synced configuration files: `current` links to the folder of one version. The link is replaced atomically, so a
 * crash leaves the old version or the new one.
 */
export class LayerFolder {
  readonly #path: string;

  /** @param data absolute path of the data folder */
  constructor(data: string) {
    this.#path = join(data, layerFolderName);
  }

  /** The last applied layers; undefined when there are none or the record is invalid. */
  applied(): AppliedLayers | undefined {
    const text = readIfThere(join(this.#path, currentName, listName));
    return text === undefined ? undefined : Applied.safeParse(parseJson(text)).data;
  }

  /** The files on disk, the lowest layer first. */
  stored(applied = this.applied()): readonly StoredLayer[] {
    return (applied?.files ?? []).map(({ name, layer, sha256 }) => ({
      name,
      layer,
      sha256,
      text: readIfThere(join(this.#path, currentName, name)),
    }));
  }

  /**
   * The layers to load.
   *
   * @throws start error when a file or the record is missing or invalid: part of a configuration is none
   */
  load(): readonly LayerFile[] {
    const applied = this.applied();
    if (applied === undefined && this.#target() !== undefined) throw this.#broken(listName, 'cannot be read');
    return this.stored(applied).map(({ name, text }) => {
      if (text === undefined) throw this.#broken(name, 'is gone');
      return { name, text };
    });
  }

  #broken(name: string, how: string): Error {
    const path = join(this.#path, currentName, name);
    return startError(`${path} ${how}; remove ${this.#path}, and the next sync writes it anew.`);
  }

  /** Replaces the files; durable when it resolves, with the undo. */
  async replace(source: string, at: string, files: readonly LayerText[]): Promise<() => Promise<void>> {
    await mkdir(this.#path, { recursive: true, mode: 0o700 });
    const old = this.#target();
    const folder = uniqueId();
    const list: AppliedLayers = {
      at,
      source,
      files: files.map(({ name, layer, text }) => ({ name, layer, sha256: sha256Of(text) })),
    };
    try {
      for (const { name, text } of files) await this.#write(join(folder, name), text);
      await this.#write(join(folder, listName), `${JSON.stringify(list, null, 2)}\n`);
      await this.#pointTo(folder);
    } catch (error) {
      await rm(join(this.#path, folder), { recursive: true, force: true });
      throw error;
    }
    return async () => {
      if (old === undefined) await rm(join(this.#path, currentName), { force: true });
      else await this.#pointTo(old);
      await rm(join(this.#path, folder), { recursive: true, force: true });
    };
  }

  /** Removes leftovers of crashes and earlier versions; keeps unknown entries. */
  async sweep(): Promise<void> {
    const current = this.#target();
    const entries = await readdir(this.#path, { withFileTypes: true }).catch(() => []);
    for (const { name } of entries.filter(isOwnLayerEntry)) {
      if (name !== currentName && name !== current) await rm(join(this.#path, name), { recursive: true, force: true });
    }
  }

  #target(): string | undefined {
    try {
      return readlinkSync(join(this.#path, currentName));
    } catch {
      return undefined;
    }
  }

  async #write(name: string, text: string): Promise<void> {
    const path = join(this.#path, name);
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await writeDurable(nodeFiles, path, [Buffer.from(text)]);
    await folderSyncOf(nodeFiles).sync(dirname(path));
  }

  async #pointTo(folder: string): Promise<void> {
    const link = join(this.#path, `${uniqueId()}${linkSuffix}`);
    await symlink(folder, link);
    await rename(link, join(this.#path, currentName));
    await folderSyncOf(nodeFiles).sync(this.#path);
  }
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    if (['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw startError(`${path} cannot be read.`, cause);
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
