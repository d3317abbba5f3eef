import type { Cluster, Documents, StoredDocument } from '../../../core/contracts/cluster.js';
import type { Document } from '../../../core/disk/document.js';
import { isProblem } from '../../../core/problem.js';
import { orUnavailable } from '../database/database.js';
import type { CopiedDocuments } from './node-copies.js';

const topic = 'document';

/** Not counted: a database that has forgotten a change never gives its version to another one. */
const anyVersion = '(1 + random() * 9e15)::bigint';

/** Documents that all nodes share. */
export class DatabaseDocuments implements Documents {
  readonly #cluster: Cluster;
  readonly #copies: Document<CopiedDocuments>;
  readonly #listeners = new Map<string, Set<() => void>>();
  /** Versions that this node has seen. */
  readonly #seen = new Map<string, number>();

  /** @param copies what this node has read last: it counts while the database is away */
  constructor(cluster: Cluster, copies: Document<CopiedDocuments>) {
    this.#cluster = cluster;
    this.#copies = copies;
    cluster.onRing(topic, (names) => {
      for (const name of names ?? this.#listeners.keys()) this.#changed(name);
    });
  }

  get(name: string): StoredDocument {
    const { database } = this.#cluster;
    return {
      place: `the document ${name} of the cluster`,
      read: () => this.#read(name),
      replace: async (text, version) => {
        const [row] = await orUnavailable(
          database.query<{ version: string }>(
            'pages',
            version === undefined
              ? `insert into postern.document (name, version, data) values ($1, ${anyVersion}, $2) on conflict do nothing returning version`
              : `update postern.document set data = $2, version = ${anyVersion} where name = $1 and version = $3 returning version`,
            version === undefined ? [name, text] : [name, text, version],
          ),
        );
        if (row === undefined) return undefined;
        const written = Number(row.version);
        this.#cluster.ring(topic, [name]);
        await this.#keep(name, { text, version: written });
        return written;
      },
      watch: (listener) => {
        const listeners = this.#listeners.get(name) ?? new Set();
        this.#listeners.set(name, listeners);
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    };
  }

  async #read(name: string): Promise<{ readonly text: string; readonly version: number } | undefined> {
    try {
      const [row] = await orUnavailable(
        this.#cluster.database.query<{ data: string; version: string }>(
          'pages',
          'select data, version from postern.document where name = $1',
          [name],
        ),
      );
      const found = row && { text: row.data, version: Number(row.version) };
      await this.#keep(name, found);
      return found;
    } catch (error) {
      const known = Object.hasOwn(this.#copies.data, name) ? this.#copies.data[name] : undefined;
      if (known === undefined || !isProblem(error) || error.problem !== 'unavailable') throw error;
      if (known !== null) this.#seen.set(name, known.version);
      return known ?? undefined;
    }
  }

  /** What the database has counts, also when it cannot be copied: the next look finds the copy outdated, and tries again. */
  async #keep(name: string, found: { readonly text: string; readonly version: number } | undefined): Promise<void> {
    if (found === undefined) this.#seen.delete(name);
    else this.#seen.set(name, found.version);
    if (Object.hasOwn(this.#copies.data, name) && this.#copies.data[name]?.version === found?.version) return;
    await this.#copies
      .update((copies) => ({ ...copies, [name]: found ?? null }))
      .catch(() => void this.#seen.delete(name));
  }

  /** Finds changes that were not announced. Called at intervals. */
  async look(): Promise<void> {
    const names = [...this.#listeners.keys()];
    if (names.length === 0) return;
    const rows = await this.#cluster.database.query<{ name: string; version: string }>(
      'pages',
      'select name, version from postern.document where name = any($1::text[])',
      [names],
    );
    const versions = new Map(rows.map(({ name, version }) => [name, Number(version)]));
    for (const name of names) if (this.#seen.get(name) !== versions.get(name)) this.#changed(name);
  }

  #changed(name: string): void {
    for (const listener of this.#listeners.get(name) ?? []) listener();
  }
}
