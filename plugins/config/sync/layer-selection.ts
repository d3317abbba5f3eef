import { layerFileName } from '../../../core/config/layer-folder.js';
import type { SkippedFile, SourceFile } from '../../../core/contracts/configuration-source.js';
import { problem } from '../../../core/problem.js';

export interface SelectedFile extends SourceFile {
  readonly layer: string;
}

export interface Selection {
  /** The lowest layer first. */
  readonly files: readonly SelectedFile[];
  readonly skipped: readonly SkippedFile[];
}

/** What is told of what does not count; a source may have very many files. */
const mostSkipped = 200;
const mostFiles = 100;

/** `servers/{server}` → `servers/mail1` */
export const layersFor = (layers: readonly string[], server: string): readonly string[] =>
  layers.map((layer) => layer.replaceAll('{server}', server));

/** The files of these layers. @throws Problem `invalid` when the first layer has none */
export function selectLayers(files: readonly SourceFile[], layers: readonly string[]): Selection {
  const named = files.filter(({ name }) => layerFileName.test(name));
  const selected = layers.flatMap((layer) =>
    named
      .filter(({ name }) => belongs(name, layer))
      .toSorted((a, b) => order(a.name, b.name))
      .map((file) => ({ ...file, layer })),
  );
  const [first = ''] = layers;
  if (!selected.some(({ layer }) => layer === first)) {
    throw problem(
      'invalid',
      `The source has nothing for the layer ${first}: neither ${first}.json5 nor a file in ${first}/.`,
    );
  }
  if (selected.length > mostFiles) throw problem('invalid', `More than ${mostFiles} files count for this server.`);
  const counted = new Set(selected.map(({ name }) => name));
  const skipped = files
    .filter(({ name }) => !counted.has(name))
    .slice(0, mostSkipped)
    .map(({ name }) => ({ file: name, why: whyNot(name) }));
  return { files: distinct(selected), skipped };
}

/** The file of a layer, or one in its folder. */
function belongs(name: string, layer: string): boolean {
  if (!isConfiguration(name)) return false;
  const stem = name.replace(/\.json5?$/, '');
  return stem === layer || (name.startsWith(`${layer}/`) && !name.slice(layer.length + 1).includes('/'));
}

const isConfiguration = (name: string): boolean => /\.json5?$/.test(name);

/** The same on every machine: by code units. */
const order = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** A file that two layers name counts where it stands first. */
function distinct(files: readonly SelectedFile[]): readonly SelectedFile[] {
  const seen = new Set<string>();
  return files.filter(({ name }) => !seen.has(name) && seen.add(name));
}

function whyNot(name: string): string {
  if (!layerFileName.test(name)) return 'has a name that is not taken';
  return isConfiguration(name) ? 'belongs to no layer of this server' : 'is no .json5 file';
}
