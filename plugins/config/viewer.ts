import type { Configuration, EffectiveValue, Origin } from '../../core/contracts/server.js';
import { isSecretName, MASK, redact } from '../../core/redact.js';

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
  /** Keys shown, of all. */
  readonly shown: number;
  readonly total: number;
  readonly sections: readonly ViewerSection[];
}

export const originFilters = ['all', 'set', 'default', 'file', 'environment', 'command line', 'generated'] as const;
/** `set`: everything but defaults. */
export type OriginFilter = (typeof originFilters)[number];

/** The effective configuration by section, every secret masked, filtered by words and origin. */
export function viewer(configuration: Configuration, q: string, origin: OriginFilter): Viewer {
  const all = configuration.effective().map(masked);
  const shown = all.filter((entry) => hasOrigin(entry.origin, origin) && matches(entry, q));
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
    sections: [...sections].map(([name, items]) => ({ name, items })),
  };
}

/** The schema has marked most secrets; an option of a plugin whose author forgot is known by its name or its looks. */
function masked(entry: EffectiveValue): EffectiveValue {
  const secret = entry.secret || (isSecretName(entry.key) && isText(entry.value));
  if (!secret) return { ...entry, value: redact(entry.value), default: redact(entry.default) };
  const shown = entry.value === null || entry.value === '' ? entry.value : MASK;
  return { ...entry, value: shown, default: isText(entry.default) ? MASK : entry.default, secret: true };
}

const isText = (value: unknown): boolean =>
  (typeof value === 'string' && value !== '') || (typeof value === 'object' && value !== null);

const hasOrigin = (origin: Origin, wanted: OriginFilter): boolean =>
  wanted === 'all' || (wanted === 'set' ? origin !== 'default' : origin === wanted);

/** What is searched is what is shown: a secret cannot be guessed letter by letter. */
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
