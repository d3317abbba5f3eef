/**
 * Typed token of a service that one plugin provides to others. Compared by `id`, never by identity: a site plugin may
 * have loaded another copy of the plugin kit.
 */
export interface Service<T> {
  readonly postern: 'service';
  readonly id: string;
  /** Carries the type only; never set. */
  readonly of?: T;
}

/** Makes a service token. Ids are stable, dotted words: `postern.directory`, `example.greylist`. */
export function service<T>(id: string): Service<T> {
  return Object.freeze({ postern: 'service', id });
}

type ServiceType<S> = S extends Service<infer T> ? T : never;

/** Tokens by key, as in `needs` and `provides`. */
export type Services = Readonly<Record<string, Service<unknown>>>;
export type ServiceValues<S extends Services> = { readonly [K in keyof S]: ServiceType<S[K]> };

/** A service of core. */
export interface ProvidedService {
  readonly token: Service<unknown>;
  readonly value: unknown;
}

export function provide<T>(token: Service<T>, value: T): ProvidedService {
  return { token, value };
}
