import type { SmtpSession } from '../../core/pipeline/transaction.js';
import type { UpstreamSettings } from './settings.js';
import { Upstream, type HostState } from './upstream.js';
import type { UpstreamGround } from './upstream-host.js';

/** Upstreams by name. Those whose settings stay keep their connections and what is known of their hosts. */
export class UpstreamShelf {
  readonly #ground: UpstreamGround;
  #byName: ReadonlyMap<string, Upstream> = new Map();

  constructor(ground: UpstreamGround) {
    this.#ground = ground;
  }

  /** In place of those before; connections in use come to their end. */
  use(settings: ReadonlyMap<string, UpstreamSettings>): void {
    const before = this.#byName;
    this.#byName = new Map([...settings].map(([name, one]) => [name, this.#kept(before.get(name), one)]));
    const used = new Set(this.#byName.values());
    for (const upstream of before.values()) if (!used.has(upstream)) void upstream.close();
  }

  get(name: string): Upstream | undefined {
    return this.#byName.get(name);
  }

  /** Hosts that are not called now, with the name of their upstream. */
  broken(): readonly (HostState & { readonly upstream: string })[] {
    return [...this.#byName].flatMap(([upstream, one]) =>
      one
        .states()
        .filter(({ state }) => state !== 'closed')
        .map((state) => ({ upstream, ...state })),
    );
  }

  /** The client is gone. */
  forget(session: SmtpSession): void {
    for (const upstream of this.#byName.values()) upstream.forget(session);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#byName.values()].map((upstream) => upstream.close()));
  }

  #kept(before: Upstream | undefined, settings: UpstreamSettings): Upstream {
    const isSame = before !== undefined && JSON.stringify(before.settings) === JSON.stringify(settings);
    return isSame ? before : new Upstream(settings, this.#ground);
  }
}
