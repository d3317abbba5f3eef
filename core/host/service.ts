/**
 * A typed token for what one plugin lends to others. Tokens are compared by `id`, never by identity:
 * a site plugin may have loaded another copy of the plugin kit.
 */
export interface Service<T> {
  readonly postern: 'service';
  readonly id: string;
  /** Carries the type only; never set. */
  readonly of?: T;
}

/** Makes the token of a service. Ids are stable, dotted words: `postern.directory`, `example.greylist`. */
export function service<T>(id: string): Service<T> {
  return Object.freeze({ postern: 'service', id });
}

type ServiceType<S> = S extends Service<infer T> ? T : never;

/** A record of tokens, as in `needs` and `provides`; its values are the services themselves. */
export type Services = Readonly<Record<string, Service<unknown>>>;
export type ServiceValues<S extends Services> = { readonly [K in keyof S]: ServiceType<S[K]> };

/** A service that core itself lends. */
export interface ProvidedService {
  readonly token: Service<unknown>;
  readonly value: unknown;
}

export function provide<T>(token: Service<T>, value: T): ProvidedService {
  return { token, value };
}
