import { isDeepStrictEqual } from 'node:util';
import { type Domain, parseDomain } from '../../mime/address.js';
import type { SmtpSettings } from './options.js';
import { readTlsMaterial, type TlsMaterial } from '../../net/tls-material.js';

/** Settings with everything that belongs to them read from its files. */
export interface ReadSettings {
  readonly settings: SmtpSettings;
  readonly domains: readonly string[];
  /** Where mail for `<postmaster>` goes (RFC 5321 §4.5.1). */
  readonly postmasterDomain: Domain | undefined;
  /** By the name of the listener. */
  readonly materials: ReadonlyMap<string, TlsMaterial | undefined>;
}

/** The settings that sessions read for each command, with keys and certificates as they were read from their files. */
export class SettingsInForce {
  readonly #folder: string;
  #state: ReadSettings;

  /** Throws a start error when a key or certificate cannot be used. */
  constructor(settings: SmtpSettings, given: { readonly folder: string; readonly domains: readonly string[] }) {
    this.#folder = given.folder;
    this.#state = this.#readAll(settings, given.domains);
  }

  get settings(): SmtpSettings {
    return this.#state.settings;
  }

  get postmasterDomain(): Domain | undefined {
    return this.#state.postmasterDomain;
  }

  /** Reads and checks everything, and changes nothing. Throws a start error. */
  read(settings: SmtpSettings, domains = this.#state.domains): ReadSettings {
    return this.#readAll(settings, domains);
  }

  take(next: ReadSettings): void {
    this.#state = next;
  }

  material(listener: string): TlsMaterial | undefined {
    return this.#state.materials.get(listener);
  }

  /** Listeners that have TLS and get another key or certificate. */
  renewed(next: ReadSettings): readonly string[] {
    return [...next.materials.keys()].filter((name) => {
      const [old, now] = [this.material(name), next.materials.get(name)];
      return old !== undefined && now !== undefined && !isDeepStrictEqual(old, now);
    });
  }

  #readAll(settings: SmtpSettings, domains: readonly string[]): ReadSettings {
    const [first] = domains;
    return {
      settings,
      domains,
      postmasterDomain: first === undefined ? undefined : parseDomain(first),
      materials: new Map(settings.listeners.map((one) => [one.name, readTlsMaterial(one, this.#folder)])),
    };
  }
}
