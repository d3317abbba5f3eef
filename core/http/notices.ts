import { randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';

/**
 * Sentences on their way from a form to the page it is sent to. The URL carries only a random key, so a link can neither
 * bring a sentence of its own nor show one to somebody else.
 */
export class Notices {
  readonly #kept = new LRUCache<string, { readonly text: string; readonly username: string | undefined }>({
    max: 1000,
    ttl: 120_000,
  });

  keep(text: string, username: string | undefined): string {
    const key = randomBytes(9).toString('base64url');
    this.#kept.set(key, { text, username });
    return key;
  }

  take(key: string | undefined, username: string | undefined): string | null {
    const kept = key === undefined ? undefined : this.#kept.get(key);
    return kept?.username === username ? (kept?.text ?? null) : null;
  }
}
