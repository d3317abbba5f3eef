import type { Clock } from '../../../core/clock.js';
import { layerFileName, type LayerText, sha256Of, type StoredLayer } from '../../../core/config/layer-folder.js';
import type {
  ConfigurationSource,
  LookBounds,
  SkippedFile,
  SourceFile,
  SourceSnapshot,
} from '../../../core/contracts/configuration-source.js';
import { redactText } from '../../../core/log/redact.js';
import { isProblem, problem, type Problem } from '../../../core/problem.js';
import { decodeText } from './web-source.js';

/** A file of the source. */
export interface PulledFile extends LayerText {
  readonly sha256: string;
}

export interface PulledLayers {
  /** Lowest layer first. */
  readonly files: readonly PulledFile[];
  readonly skipped: readonly SkippedFile[];
  readonly wanted: boolean;
}

interface PullInput {
  readonly source: ConfigurationSource;
  /** Lowest first, with this server's name inserted. */
  readonly layers: readonly string[];
  /** Same as on disk: not read again. */
  readonly stored: readonly StoredLayer[];
  readonly bounds: LookBounds;
}

/** Attempts when the source changes during the read. */
const attempts = 3;

/** One consistent state of the source. @throws Problem `unavailable` or `invalid` */
export async function pullLayers(input: PullInput): Promise<PulledLayers> {
  for (let attempt = 1; ; attempt += 1) {
    const snapshot = await input.source.look(input.bounds);
    const { files, skipped } = selectLayers(snapshot.files, input.layers);
    const pulled = await readAll(snapshot, files, input);
    try {
      await snapshot.confirm();
    } catch (error) {
      if (attempt < attempts) continue;
      throw error;
    }
    return { files: pulled, skipped: [...snapshot.skipped, ...skipped], wanted: snapshot.wanted === true };
  }
}

async function readAll(
  snapshot: SourceSnapshot,
  files: readonly SelectedFile[],
  { stored, bounds }: PullInput,
): Promise<readonly PulledFile[]> {
  const pulled: PulledFile[] = [];
  let bytes = 0;
  for (const { name, layer, sha256 } of files) {
    const known = stored.find((file) => file.name === name && file.sha256 === sha256)?.text;
    const intact = known !== undefined && sha256Of(known) === sha256;
    const text = intact ? known : decodeText(await snapshot.read(name), name);
    bytes += Buffer.byteLength(text);
    if (bytes > bounds.maxBytes) {
      throw problem('invalid', `All files together are larger than ${bounds.maxBytes} bytes (maxBytes).`);
    }
    pulled.push({ name, layer, text, sha256: sha256Of(text) });
  }
  return pulled;
}

interface SelectedFile extends SourceFile {
  readonly layer: string;
}

interface Selection {
  /** Lowest layer first. */
  readonly files: readonly SelectedFile[];
  readonly skipped: readonly SkippedFile[];
}

/** Maximum number of reported ignored files; a source may have very many. */
const maxSkipped = 200;
const maxFiles = 100;

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
  if (selected.length > maxFiles) throw problem('invalid', `More than ${maxFiles} files count for this server.`);
  const counted = new Set(selected.map(({ name }) => name));
  const skipped = files
    .filter(({ name }) => !counted.has(name))
    .slice(0, maxSkipped)
    .map(({ name }) => ({ file: name, why: whyNot(name) }));
  return { files: distinct(selected), skipped };
}

/** The file of a layer, or a file in its folder. */
function belongs(name: string, layer: string): boolean {
  if (!isConfiguration(name)) return false;
  const stem = name.replace(/\.json5?$/, '');
  return stem === layer || (name.startsWith(`${layer}/`) && !name.slice(layer.length + 1).includes('/'));
}

const isConfiguration = (name: string): boolean => /\.json5?$/.test(name);

/** By code units, so that the order is the same on every machine. */
const order = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** A file that two layers name counts in the first. */
function distinct(files: readonly SelectedFile[]): readonly SelectedFile[] {
  const seen = new Set<string>();
  return files.filter(({ name }) => !seen.has(name) && seen.add(name));
}

function whyNot(name: string): string {
  if (!layerFileName.test(name)) return 'has a name that is not taken';
  return isConfiguration(name) ? 'belongs to no layer of this server' : 'is no .json5 file';
}

/** Milliseconds until the same files are offered again automatically. */
const againAfterMs = 600_000;

interface Refusal {
  readonly version: string;
  readonly atMs: number;
  readonly error: Problem;
}

/**
 * Remembers which files the server has refused. They are offered again on request, or after a while, since the reason
 * may have gone; not at every check, which would fill the logs.
 */
export class Offer {
  readonly #clock: Pick<Clock, 'monotonic'>;
  #refusal: Refusal | undefined;

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock;
  }

  forget(): void {
    this.#refusal = undefined;
  }

  /** Rejects as `offer` does, or with the earlier error when these files were refused a short time ago. */
  async make<T>(files: readonly PulledFile[], unasked: boolean, offer: () => Promise<T>): Promise<T> {
    const version = sha256Of(JSON.stringify(files.map(({ name, sha256 }) => [name, sha256])));
    const nowMs = this.#clock.monotonic();
    const last = this.#refusal;
    if (unasked && last?.version === version && nowMs - last.atMs < againAfterMs) throw last.error;
    try {
      const outcome = await offer();
      this.#refusal = undefined;
      return outcome;
    } catch (error) {
      if (isProblem(error) && error.problem === 'invalid') this.#refusal = { version, atMs: nowMs, error };
      throw error;
    }
  }

  /** The refused files, each with its reason. */
  refused(files: readonly PulledFile[]): readonly SkippedFile[] {
    const errors = this.#refusal?.error.details.errors;
    if (errors === undefined) return [];
    return files.map(({ name }) => {
      const message = errors.find((error) => error.message.startsWith(`sync:${name}:`))?.message;
      return { file: name, why: redactText(message ?? 'waits, because the configuration is refused') };
    });
  }
}
