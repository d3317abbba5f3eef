import { maskedValue } from '../../../core/config/masking.js';
import type { Configuration, ConfigurationFile, EffectiveValue } from '../../../core/contracts/server.js';

export interface ViewerSection {
  /** `server`, `http`, `smtp`, `plugins.users`. */
  readonly name: string;
  readonly items: readonly EffectiveValue[];
}

export interface Viewer {
  /** The configuration file, or null when the server runs on defaults. */
  readonly file: string | null;
  readonly q: string;
  readonly origin: OriginFilter;
  /** Number of shown keys, and of all. */
  readonly shown: number;
  readonly total: number;
  /** Keys changed since the start, and keys that need a restart. */
  readonly changed: number;
  readonly restartRequired: number;
  readonly sections: readonly ViewerSection[];
  /** The files as read, secrets masked. */
  readonly files: readonly ConfigurationFile[];
}

export const originFilters = [
  'all',
  'set',
  'changed',
  'default',
  'file',
  'environment',
  'command line',
  'generated',
] as const;
/** `set`: all but defaults; `changed`: different from the start, now or after the next restart. */
export type OriginFilter = (typeof originFilters)[number];

/** The effective configuration by section, every secret masked, filtered by words and origin. */
export function viewer(configuration: Configuration, q: string, origin: OriginFilter): Viewer {
  const all = configuration.effective().map(maskedValue);
  const shown = all.filter((entry) => hasOrigin(entry, origin) && matches(entry, q));
  const sections = new Map<string, EffectiveValue[]>();
  for (const entry of shown) {
    const name = sectionOf(entry.key);
    sections.set(name, [...(sections.get(name) ?? []), entry]);
  }
  return {
    file: configuration.file,
    q,
    origin,
    shown: shown.length,
    total: all.length,
    changed: all.filter(({ atStart }) => atStart !== undefined).length,
    restartRequired: all.filter(({ pending }) => pending !== undefined).length,
    sections: [...sections].map(([name, items]) => ({ name, items })),
    files: configuration.files?.() ?? [],
  };
}

function hasOrigin({ origin, atStart, pending }: EffectiveValue, wanted: OriginFilter): boolean {
  if (wanted === 'all') return true;
  if (wanted === 'changed') return atStart !== undefined || pending !== undefined;
  return wanted === 'set' ? origin !== 'default' : origin === wanted;
}

/** Searches only what is shown, so that a secret cannot be guessed letter by letter. */
function matches({ key, value, description, where }: EffectiveValue, q: string): boolean {
  const text = `${key} ${JSON.stringify(value)} ${description ?? ''} ${where ?? ''}`.toLowerCase();
  return q
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

function sectionOf(key: string): string {
  const [first = '', second] = key.split('.');
  if (second === undefined) return 'server';
  return first === 'plugins' ? `plugins.${second}` : first;
}
