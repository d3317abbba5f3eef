import JSON5 from 'json5';
import { z } from 'zod';
import { layerFileName, sha256Of } from '../../../core/config/layer-folder.js';
import { type RepeatedKey, repeatedKeyMessage, repeatedKeys } from '../../../core/config/positions.js';
import type {
  ConfigurationSource,
  LookBounds,
  SourceRequest,
  SourceSnapshot,
} from '../../../core/contracts/configuration-source.js';
import { isLoopbackAddress } from '../../../core/net/ip-address.js';
import { isProblem, problem, type Problem } from '../../../core/problem.js';

const maxFiles = 1000;

/** `{files: [{name: "base.json5", sha256: "…"}]}`: each file is beside the manifest. */
const Manifest = z.object({
  files: z
    .array(
      z.object({
        name: z.string().regex(layerFileName, 'has a name that is not taken'),
        sha256: z.string().regex(/^[0-9a-fA-F]{64}$/, 'must be 64 hexadecimal digits'),
      }),
    )
    .max(maxFiles),
});
type ManifestFile = z.output<typeof Manifest>['files'][number];

/** A URL as a source: of one configuration file, or of a manifest that names several. Uses conditional requests. */
export class WebSource implements ConfigurationSource {
  readonly shown: string;
  readonly #reader: WebReader;
  readonly #url: URL;
  readonly #defaultName: string;
  #known: { readonly tag: string; readonly body: Buffer } | undefined;

  constructor({ address, defaultName, ...credentials }: SourceRequest) {
    this.#url = new URL(address);
    this.#reader = new WebReader(this.#url, credentials);
    this.#defaultName = defaultName;
    const { origin, pathname, search } = this.#url;
    this.shown = `${origin}${pathname}${search === '' ? '' : '?…'}`;
  }

  async look(bounds: LookBounds): Promise<SourceSnapshot> {
    const body = await this.#body(bounds);
    const files = manifestIn(body);
    if (files === undefined) {
      return {
        files: [{ name: this.#defaultName, sha256: sha256Of(body) }],
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

  /** The hash decides: a file of another state of the source is refused. */
  async #file(file: ManifestFile | undefined, bounds: LookBounds): Promise<Buffer> {
    if (file === undefined) throw problem('unavailable', 'The source changes at this moment.');
    const answer = await this.#reader.get(new URL(file.name, this.#url), bounds);
    if (answer === 'not modified')
      throw problem('invalid', `${file.name}: the source answers 304 to a first question.`);
    if (sha256Of(answer.body) === file.sha256.toLowerCase()) return answer.body;
    throw problem('invalid', `${file.name} is not what the manifest says: its sha256 is another one.`);
  }
}

/** The files of a manifest; undefined for another document. */
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

/** The configuration check reports the position of the error. */
function parse(body: Buffer): { readonly content: unknown; readonly repeated: readonly RepeatedKey[] } | undefined {
  try {
    const text = decodeText(body, 'the document');
    return { content: JSON5.parse<unknown>(text), repeated: repeatedKeys(text) };
  } catch {
    return undefined;
  }
}

interface WebCredentials {
  readonly token?: string | undefined;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
}

interface WebAnswer {
  readonly body: Buffer;
  /** ETag (RFC 9110 §8.8.3). */
  readonly tag: string | undefined;
}

const maxRedirects = 5;

/** Fetches documents of bounded size. Credentials are sent to the configured host only. */
class WebReader {
  readonly #origin: string;
  readonly #authorization: string | undefined;

  /** Credentials in the URL are used too, and removed from it. */
  constructor(url: URL, credentials: WebCredentials) {
    this.#origin = url.origin;
    const {
      token,
      username = decodeURIComponent(url.username),
      password = decodeURIComponent(url.password),
    } = credentials;
    url.username = '';
    url.password = '';
    if (token !== undefined) this.#authorization = `Bearer ${token}`;
    else if (username !== '') {
      this.#authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
    }
  }

  /** @throws Problem `unavailable` when it cannot be reached, `invalid` when its content is unusable */
  async get(url: URL, { maxBytes, signal }: LookBounds, tag?: string): Promise<WebAnswer | 'not modified'> {
    try {
      const response = await this.#follow(url, signal, tag);
      if (response.status === 304) return 'not modified';
      if (response.status !== 200) throw refused(url, response.status);
      return { body: await bodyOf(response, maxBytes, url), tag: response.headers.get('ETag') ?? undefined };
    } catch (cause) {
      if (isProblem(cause)) throw cause;
      throw unreachable(url, signal, cause);
    }
  }

  async #follow(start: URL, signal: AbortSignal, tag: string | undefined): Promise<Response> {
    let url = start;
    for (let hops = 0; hops <= maxRedirects; hops += 1) {
      const response = await fetch(url, { redirect: 'manual', signal, headers: this.#headers(url, tag) });
      const { status, headers } = response;
      if (![301, 302, 303, 307, 308].includes(status)) return response;
      await response.body?.cancel();
      url = redirected(url, headers.get('Location'));
    }
    throw problem('invalid', `${shown(start)} redirects more than ${maxRedirects} times.`);
  }

  #headers({ origin }: URL, tag: string | undefined): Readonly<Record<string, string>> {
    return {
      Accept: 'application/json, application/json5, text/plain;q=0.9, */*;q=0.5',
      ...(tag !== undefined && { 'If-None-Match': tag }),
      ...(this.#authorization !== undefined && origin === this.#origin && { Authorization: this.#authorization }),
    };
  }
}

/** True for an http URL whose host is not this machine. */
export function isClearText(address: string): boolean {
  const url = URL.parse(address);
  if (url?.protocol !== 'http:') return false;
  const host = url.hostname.replace(/^\[|\]$/g, '');
  return host !== 'localhost' && !isLoopbackAddress(host);
}

function redirected(from: URL, location: string | null): URL {
  const to = location === null ? null : URL.parse(location, from.href);
  if (to === null) throw problem('invalid', `${shown(from)} redirects to no address.`);
  const isSafe =
    to.protocol === 'https:' || (from.protocol === 'http:' && to.protocol === 'http:' && !isClearText(to.href));
  if (!isSafe) throw problem('invalid', `${shown(from)} redirects to a place that is not as safe.`);
  to.username = '';
  to.password = '';
  return to;
}

async function bodyOf(response: Response, maxBytes: number, url: URL): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const received: AsyncIterable<Uint8Array> | null = response.body;
  for await (const chunk of received ?? []) {
    size += chunk.length;
    if (size > maxBytes) throw problem('invalid', `${shown(url)} is larger than ${maxBytes} bytes.`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Distinguishes temporary errors from those that an operator must fix. */
function refused(url: URL, status: number): Error {
  const passes = status >= 500 || status === 429 || status === 408;
  return problem(passes ? 'unavailable' : 'invalid', `${shown(url)} answers ${status}.`);
}

function unreachable(url: URL, signal: AbortSignal, cause: unknown): Error {
  const why = signal.aborted ? 'does not answer in time' : `cannot be reached (${codeOf(cause)})`;
  return problem('unavailable', { detail: `${shown(url)} ${why}.`, cause });
}

function codeOf(error: unknown): string {
  const inner = error instanceof Error ? error.cause : undefined;
  const code = (inner as { code?: unknown } | undefined)?.code ?? (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' ? code : 'the connection broke';
}

/** A query may contain a token. */
const shown = ({ origin, pathname }: URL): string => `${origin}${pathname}`;

/** Strict UTF-8. @throws Problem `invalid` */
export function decodeText(bytes: Buffer, name: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw problem('invalid', { detail: `${name} is not UTF-8.`, cause });
  }
}
