import { sha256Of, type LayerText, type StoredLayer } from '../../../core/config/layer-folder.js';
import type {
  ConfigurationSource,
  LookBounds,
  SkippedFile,
  SourceSnapshot,
} from '../../../core/contracts/configuration-source.js';
import { problem } from '../../../core/problem.js';
import { selectLayers, type SelectedFile } from './layer-selection.js';
import { decodeText } from '../http/text.js';

/** A file as the source has it now. */
export interface PulledFile extends LayerText {
  readonly sha256: string;
}

export interface PulledLayers {
  /** The lowest layer first. */
  readonly files: readonly PulledFile[];
  readonly skipped: readonly SkippedFile[];
}

export interface PullInput {
  readonly source: ConfigurationSource;
  /** The lowest first, as this server calls them. */
  readonly layers: readonly string[];
  /** What is on disk: it is not read again. */
  readonly stored: readonly StoredLayer[];
  readonly bounds: LookBounds;
}

/** A source that is exchanged while it is read is read once more. */
const attempts = 3;

/** One state of the source, whole. @throws Problem `unavailable` or `invalid` */
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
    return { files: pulled, skipped: [...snapshot.skipped, ...skipped] };
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
    if (bytes > bounds.mostBytes) {
      throw problem('invalid', `All files together are larger than ${bounds.mostBytes} bytes (maxBytes).`);
    }
    pulled.push({ name, layer, text, sha256: sha256Of(text) });
  }
  return pulled;
}
