import { service } from './service.js';

/** A file of a source. */
export interface SourceFile {
  /**
   * `base.json5`, `servers/mail1.json5`: parts of letters, digits, `.`, `_` and `-` that begin with a letter or digit.
   */
  readonly name: string;
  /** Hexadecimal, when the source provides it; then a file that is already here is not read again. */
  readonly sha256?: string;
}

/** A file that is ignored, and why, as a sentence without its subject: `is no .json5 file`. */
export interface SkippedFile {
  readonly file: string;
  readonly why: string;
}

/** Content of a source at one moment. */
export interface SourceSnapshot {
  readonly files: readonly SourceFile[];
  readonly skipped: readonly SkippedFile[];
  /** An operator wants these now: they are offered although they were refused a moment ago. */
  readonly wanted?: boolean;
  /** The content of one of `files`. @throws Problem as `look` */
  read(name: string): Promise<Buffer>;
  /** After all reads: rejects when the source changed meanwhile, so that the files may not belong together. */
  confirm(): Promise<void>;
}

export interface LookBounds {
  /** Maximum size of a file, in bytes. */
  readonly maxBytes: number;
  /** Aborts everything in progress. */
  readonly signal: AbortSignal;
  /** The files are only compared with those that are applied. */
  readonly dryRun?: boolean;
}

/** How a look ended. `postponed`: the files could not be read, or another reload ran. */
export type SourceResult =
  { readonly status: 'applied' | 'unchanged' | 'postponed' } | { readonly status: 'refused'; readonly why: string };

/** A server that has the same source. */
export interface SourceServer {
  readonly server: string;
  /** Name of what it has applied last; null before. */
  readonly version: string | null;
  readonly state: 'waiting' | 'applying' | 'checking' | 'applied' | 'refused' | 'failed' | 'stopped' | 'none';
  /** Why it is not applied, as a sentence. */
  readonly why: string | null;
}

/** Where configuration files are pulled from. */
export interface ConfigurationSource {
  /** The address for display, without passwords, tokens and queries. */
  readonly shown: string;
  /** @throws Problem `unavailable` when it cannot be reached now; `invalid` when an operator must fix it */
  look(bounds: LookBounds): Promise<SourceSnapshot>;
  /** Calls the listener when something has changed: it looks soon, and at its interval all the same. Returns the undo. */
  watch?(listener: () => void): () => void;
  /** Called at the end of each look that was no dry run. Never rejects. */
  done?(result: SourceResult): Promise<void>;
  /** The servers that this source is for, where it knows them. @throws Problem `unavailable` */
  servers?(): Promise<readonly SourceServer[]>;
}

export interface SourceRequest {
  /** As configured: `/etc/postern/central`, `https://config.example.org/manifest.json`, `s3:bucket/postern`. */
  readonly address: string;
  /** Base of a relative path. */
  readonly folder: string;
  readonly token: string | undefined;
  readonly username: string | undefined;
  readonly password: string | undefined;
  /** Names a file for which the source has no name. */
  readonly defaultName: string;
}

/** Kinds of sources, by the scheme of their addresses. A plugin adds one in its setup. */
export interface ConfigurationSources {
  /** @param scheme lower case letters and digits, for addresses `scheme:…`. Returns the undo. */
  add(scheme: string, open: (request: SourceRequest) => ConfigurationSource): () => void;
}
export const configurationSources = service<ConfigurationSources>('postern.configuration-sources');

/** The kind of source of a plugin that starts before the plugin `config`. */
export interface SourceKind {
  readonly scheme: string;
  open(request: SourceRequest): ConfigurationSource;
}
export const configurationSets = service<SourceKind>('postern.configuration-sets');
