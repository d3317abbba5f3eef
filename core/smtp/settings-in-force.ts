import { isDeepStrictEqual } from 'node:util';
import { parseDomain, type Domain } from '../mime/address.js';
import { startError } from '../start-error.js';
import type { ClientLimits } from './limits.js';
import type { Listener } from './listener.js';
import type { ListenerSettings } from './listener-options.js';
import type { SmtpSettings } from './options.js';
import { readTlsMaterial, type TlsMaterial } from './tls-material.js';

/** Settings that can be put into force without fail. */
export interface PreparedSettings {
  /** Listeners that get another key or certificate than they have. */
  readonly renewed: readonly string[];
  /** Returns the way back. */
  commit(): () => void;
}

/** Who takes new settings. */
interface Takers {
  readonly listeners: readonly Listener[];
  readonly clients: ClientLimits;
}

interface State {
  readonly settings: SmtpSettings;
  /** Where mail for `<postmaster>` goes (RFC 5321 §4.5.1). */
  readonly postmasterDomain: Domain | undefined;
  /** By the name of the listener. */
  readonly materials: ReadonlyMap<string, TlsMaterial | undefined>;
}

/** The settings that sessions read for each command, with keys and certificates as they were read from their files. */
export class SettingsInForce {
  readonly #folder: string;
  #domains: readonly string[];
  #state: State;

  /** Throws a start error when a key or certificate cannot be used. */
  constructor(settings: SmtpSettings, given: { readonly folder: string; readonly domains: readonly string[] }) {
    this.#folder = given.folder;
    this.#domains = given.domains;
    this.#state = {
      settings,
      postmasterDomain: firstOf(given.domains),
      materials: new Map(settings.listeners.map((one) => [one.name, readTlsMaterial(one, given.folder)])),
    };
  }

  get settings(): SmtpSettings {
    return this.#state.settings;
  }

  get postmasterDomain(): Domain | undefined {
    return this.#state.postmasterDomain;
  }

  material(listener: string): TlsMaterial | undefined {
    return this.#state.materials.get(listener);
  }

  /** Reads and checks everything, and changes nothing. Throws a start error. */
  prepare(settings: SmtpSettings, domains: readonly string[] | undefined, takers: Takers): PreparedSettings {
    const old = this.#state.settings.listeners;
    const materials = new Map(
      old.map((listener) => [listener.name, readTlsMaterial(sameListener(listener, settings.listeners), this.#folder)]),
    );
    if (settings.listeners.length !== old.length) throw needsRestart('the number of listeners');
    const next = { settings, postmasterDomain: firstOf(domains ?? this.#domains), materials };
    return {
      renewed: [...materials]
        .filter(([name, now]) => !isDeepStrictEqual(now, this.material(name)))
        .map(([name]) => name),
      commit: () => {
        const before = [this.#state, this.#domains] as const;
        this.#take(next, domains ?? this.#domains, takers);
        return () => this.#take(...before, takers);
      },
    };
  }

  #take(next: State, domains: readonly string[], { listeners, clients }: Takers): void {
    for (const listener of listeners) {
      const { name } = listener.settings;
      const material = next.materials.get(name);
      if (material !== undefined && !isDeepStrictEqual(material, this.material(name))) listener.renew(material);
    }
    this.#state = next;
    this.#domains = domains;
    clients.reconfigure(next.settings.limits);
  }
}

/** The new settings of a listener; all but its key and certificate must be as they are. */
function sameListener(old: ListenerSettings, next: readonly ListenerSettings[]): ListenerSettings {
  const found = next.find(({ name }) => name === old.name);
  const fixed = ['host', 'port', 'fd', 'mode', 'tls', 'allowPlaintextAuth', 'greetDelayMs'] as const;
  if (found === undefined) throw needsRestart(`listener ${old.name}`);
  for (const key of fixed) if (found[key] !== old[key]) throw needsRestart(`${key} of listener ${old.name}`);
  return found;
}

const firstOf = ([first]: readonly string[]): Domain | undefined =>
  first === undefined ? undefined : parseDomain(first);

const needsRestart = (what: string): Error => startError(`A change of ${what} takes a restart.`);
