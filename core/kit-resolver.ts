import type { InitializeHook, ResolveHook } from 'node:module';

/** What the hooks are told of the running server, once. */
export interface KitPlaces {
  /** URL of each module that the package exports, by its specifier: `postern/plugin`. */
  readonly exported: Readonly<Record<string, string>>;
}

/** Module hooks for site plugins: `postern/…` resolves to the modules of the running server. Runs in a thread of its own. */
let places: KitPlaces = { exported: {} };

export const initialize: InitializeHook<KitPlaces> = (data) => {
  places = data;
};

export const resolve: ResolveHook = (specifier, context, nextResolve) => {
  const url = Object.hasOwn(places.exported, specifier) ? places.exported[specifier] : undefined;
  return url === undefined ? nextResolve(specifier, context) : { url, shortCircuit: true };
};
