import { service } from '../host/service.js';

/** A file that a source has. */
export interface SourceFile {
  /** `base.json5`, `servers/mail1.json5`: parts of letters, digits, `.`, `_` and `-` that begin with a letter or digit. */
  readonly name: string;
  /** Hexadecimal, when the source tells; then a file that is here already is not read again. */
  readonly sha256?: string;
}

/** A file that does not count, and why not, as a sentence without its subject: `is no .json5 file`. */
export interface SkippedFile {
  readonly file: string;
  readonly why: string;
}

/** What a source has at one moment. */
export interface SourceSnapshot {
  readonly files: readonly SourceFile[];
  readonly skipped: readonly SkippedFile[];
  /** The content of one of `files`. @throws Problem as `look` */
  read(name: string): Promise<Buffer>;
  /** After all reads: rejects when the source has changed meanwhile, so that what was read may not belong together. */
  confirm(): Promise<void>;
}

export interface LookBounds {
  /** No file may be larger, in bytes. */
  readonly mostBytes: number;
  /** When it aborts, everything under way ends. */
  readonly signal: AbortSignal;
}

/** Where configuration files are pulled from. */
export interface ConfigurationSource {
  /** The address as it may be shown: without passwords, tokens and queries. */
  readonly shown: string;
  /**
   * @throws Problem `unavailable` when it cannot be reached now, which mends itself; `invalid` when somebody must mend it
   */
  look(bounds: LookBounds): Promise<SourceSnapshot>;
}

export interface SourceRequest {
  /** As it was configured: `/etc/postern/central`, `https://config.example.org/manifest.json`, `s3:bucket/postern`. */
  readonly address: string;
  /** What a relative path is relative to. */
  readonly folder: string;
  readonly token: string | undefined;
  readonly username: string | undefined;
  readonly password: string | undefined;
  /** Names a file for which the source has no name of its own. */
  readonly defaultName: string;
}

/** Kinds of sources, by the scheme of their addresses. A plugin adds one in its setup. */
export interface ConfigurationSources {
  /** @param scheme lower case letters and digits, for addresses `scheme:…`. Returns the undo. */
  add(scheme: string, open: (request: SourceRequest) => ConfigurationSource): () => void;
}
export const configurationSources = service<ConfigurationSources>('postern.configuration-sources');
