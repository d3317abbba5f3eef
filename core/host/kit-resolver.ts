import type { InitializeHook, ResolveHook } from 'node:module';

/** Configuration of the module hooks. */
export interface KitPlaces {
  /** URL of each module that the package exports, by specifier: `postern/plugin`. */
  readonly exported: Readonly<Record<string, string>>;
  /** Query parameter that carries the version of a plugin's code. */
  readonly parameter: string;
}

/**
 * Module hooks for site plugins, on a thread of their own. `postern/…` resolves to the modules of the running server. A
 * module that a plugin imports from its own package gets the version of its importer, so a changed plugin is loaded
 * entirely anew. Packages below `node_modules` are loaded once.
 */
let places: KitPlaces = { exported: {}, parameter: '' };
/** Newest version by folder: modules loaded by CommonJS do not carry theirs. */
const versions = new Map<string, string>();

export const initialize: InitializeHook<KitPlaces> = (data) => {
  places = data;
};

export const resolve: ResolveHook = async (specifier, context, nextResolve) => {
  const kit = Object.hasOwn(places.exported, specifier) ? places.exported[specifier] : undefined;
  if (kit !== undefined) return { url: kit, shortCircuit: true };
  const found = await nextResolve(specifier, context);
  if (!found.url.startsWith('file:')) return found;
  const url = new URL(found.url);
  const own = url.searchParams.get(places.parameter);
  if (own !== null) {
    versions.set(folderOf(url), own);
    return found;
  }
  const parent = context.parentURL?.startsWith('file:') === true ? new URL(context.parentURL) : undefined;
  const version = parent && (parent.searchParams.get(places.parameter) ?? versionAround(parent));
  if (parent === undefined || version === undefined || packageOf(url) !== packageOf(parent)) return found;
  url.searchParams.set(places.parameter, version);
  return { ...found, url: url.href };
};

const folderOf = ({ pathname }: URL): string => pathname.slice(0, pathname.lastIndexOf('/') + 1);

/** Version of the closest folder above that a plugin was loaded from. */
function versionAround({ pathname }: URL): string | undefined {
  for (let end = pathname.lastIndexOf('/'); end >= 0; end = end === 0 ? -1 : pathname.lastIndexOf('/', end - 1)) {
    const version = versions.get(pathname.slice(0, end + 1));
    if (version !== undefined) return version;
  }
  return undefined;
}

/** Root of the package that a module belongs to; empty outside `node_modules`. */
const packageOf = ({ pathname }: URL): string => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+\//.exec(pathname)?.[0] ?? '';
