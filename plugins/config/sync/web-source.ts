import JSON5 from 'json5';
import { z } from 'zod';
import { layerFileName, sha256Of } from '../../../core/config/layer-folder.js';
import type {
  ConfigurationSource,
  LookBounds,
  SourceRequest,
  SourceSnapshot,
} from '../../../core/contracts/configuration-source.js';
import { repeatedKeys, repeatedKeyMessage, type RepeatedKey } from '../../../core/config/positions.js';
import { problem, type Problem } from '../../../core/problem.js';
import { decodeText } from '../http/text.js';
import { WebReader } from './web-reader.js';

const mostFiles = 1000;

/** `{files: [{name: "base.json5", sha256: "…"}]}`: each lies beside the manifest, under its name. */
const Manifest = z.object({
  files: z
    .array(
      z.object({
        name: z.string().regex(layerFileName, 'has a name that is not taken'),
        sha256: z.string().regex(/^[0-9a-fA-F]{64}$/, 'must be 64 hexadecimal digits'),
      }),
    )
    .max(mostFiles),
});
type ManifestFile = z.output<typeof Manifest>['files'][number];

/** A URL: of one configuration file, or of a manifest that names several. It is asked whether it has changed. */
export class WebSource implements ConfigurationSource {
  readonly shown: string;
  readonly #reader: WebReader;
  readonly #url: URL;
  readonly #usualName: string;
  #known: { readonly tag: string; readonly body: Buffer } | undefined;

  constructor({ address, usualName, ...credentials }: SourceRequest) {
    this.#url = new URL(address);
    this.#reader = new WebReader(this.#url, credentials);
    this.#usualName = usualName;
    const { origin, pathname, search } = this.#url;
    this.shown = `${origin}${pathname}${search === '' ? '' : '?…'}`;
  }

  async look(bounds: LookBounds): Promise<SourceSnapshot> {
    const body = await this.#body(bounds);
    const files = manifestIn(body);
    if (files === undefined) {
      return {
        files: [{ name: this.#usualName, sha256: sha256Of(body) }],
        skipped: [],
        read: () => Promise.resolve(body),
        confirm: () => Promise.resolve(),
      };
    }
    return {
      files: files.map(({ name, sha256 }) => ({ name, sha256: sha256.toLowerCase() })),
      skipped: [],
      read: (name) =>
        this.#file(
          files.find((file) => file.name === name),
          bounds,
        ),
      confirm: () => Promise.resolve(),
    };
  }

  async #body(bounds: LookBounds): Promise<Buffer> {
    const answer = await this.#reader.get(this.#url, bounds, this.#known?.tag);
    if (answer === 'not modified') {
      if (this.#known !== undefined) return this.#known.body;
      throw problem('invalid', `${this.shown} answers 304 although it was not asked whether it has changed.`);
    }
    this.#known = answer.tag === undefined ? undefined : { tag: answer.tag, body: answer.body };
    return answer.body;
  }

  /** What the hash says is what counts: a file of another state of the source is refused. */
  async #file(file: ManifestFile | undefined, bounds: LookBounds): Promise<Buffer> {
    if (file === undefined) throw problem('unavailable', 'The source changes at this moment.');
    const answer = await this.#reader.get(new URL(file.name, this.#url), bounds);
    if (answer === 'not modified')
      throw problem('invalid', `${file.name}: the source answers 304 to a first question.`);
    if (sha256Of(answer.body) === file.sha256.toLowerCase()) return answer.body;
    throw problem('invalid', `${file.name} is not what the manifest says: its sha256 is another one.`);
  }
}

/** The files that a manifest names; undefined for a document that is none. */
function manifestIn(body: Buffer): readonly ManifestFile[] | undefined {
  const { content, repeated } = parse(body) ?? {};
  if (typeof content !== 'object' || content === null || !('files' in content)) return undefined;
  const [again] = repeated ?? [];
  if (again !== undefined) throw unusable(again.path, repeatedKeyMessage(again));
  const parsed = Manifest.safeParse(content);
  if (parsed.success) return parsed.data.files;
  const [issue] = parsed.error.issues;
  throw unusable(issue?.path ?? [], issue?.message ?? '');
}

const unusable = (path: readonly PropertyKey[], why: string): Problem =>
  problem('invalid', `The manifest cannot be used: ${path.join('.')}: ${why}.`);

/** Who checks the configuration says where a broken document is broken. */
function parse(body: Buffer): { readonly content: unknown; readonly repeated: readonly RepeatedKey[] } | undefined {
  try {
    const text = decodeText(body, 'the document');
    return { content: JSON5.parse<unknown>(text), repeated: repeatedKeys(text) };
  } catch {
    return undefined;
  }
}
