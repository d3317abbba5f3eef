import { sha256Of, type StoredLayer } from '../../../core/config/layer-folder.js';
import type { SkippedFile } from '../../../core/contracts/configuration-source.js';

export type SyncState = 'off' | 'ok' | 'stale' | 'error';

export interface AppliedFile {
  readonly file: string;
  readonly layer: string;
  readonly sha256: string;
}

/** What is not the same everywhere. */
export interface Drift {
  /** Files that the source had otherwise at the last look than what is applied. */
  readonly source: readonly string[];
  /** Applied files that somebody has edited or removed in the data folder. */
  readonly disk: readonly string[];
  /** What a reload, or a restart, would change in the running server; `error` when the files on disk would be refused. */
  readonly running: {
    readonly changed: readonly string[];
    readonly restartRequired: readonly string[];
    readonly error: string | null;
  };
}

export interface SyncSummary {
  /** `stale`: what is in force may be old; it mends itself, or waits for POST /config/sync. `error`: somebody must mend it. */
  readonly state: SyncState;
  /** As it may be shown. */
  readonly source: string | null;
  readonly lastAttempt: string | null;
  readonly lastSuccess: string | null;
  readonly error: string | null;
}

export interface SyncStatus extends SyncSummary {
  readonly layers: readonly string[];
  readonly apply: 'automatic' | 'manual' | null;
  readonly intervalSeconds: number | null;
  readonly appliedAt: string | null;
  readonly applied: readonly AppliedFile[];
  readonly skipped: readonly SkippedFile[];
  /** Null when there is no source. */
  readonly drift: Drift | null;
}

export const syncIsOff: SyncStatus = {
  state: 'off',
  source: null,
  layers: [],
  apply: null,
  intervalSeconds: null,
  lastAttempt: null,
  lastSuccess: null,
  appliedAt: null,
  applied: [],
  skipped: [],
  drift: null,
  error: null,
};

/** Files that one side has otherwise than the other, or not at all. */
export function differingFiles(
  one: readonly { readonly name: string; readonly sha256: string }[],
  other: readonly { readonly name: string; readonly sha256: string }[],
): readonly string[] {
  const hashes = new Map(other.map(({ name, sha256 }) => [name, sha256]));
  const names = new Set(one.map(({ name }) => name));
  return [
    ...one.filter(({ name, sha256 }) => hashes.get(name) !== sha256).map(({ name }) => name),
    ...other.filter(({ name }) => !names.has(name)).map(({ name }) => name),
  ];
}

/** Applied files that are no longer what was applied. */
export const touchedFiles = (stored: readonly StoredLayer[]): readonly string[] =>
  stored.filter(({ text, sha256 }) => text === undefined || sha256Of(text) !== sha256).map(({ name }) => name);
