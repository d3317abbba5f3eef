import type { InitializeHook, ResolveHook } from 'node:module';

/** Module hooks for site plugins: `postern/plugin` resolves to the kit of the running server. Runs in a thread of its own. */
let kit = '';

export const initialize: InitializeHook<{ readonly kit: string }> = (data) => {
  kit = data.kit;
};

export const resolve: ResolveHook = (specifier, context, nextResolve) =>
  specifier === 'postern/plugin' ? { url: kit, shortCircuit: true } : nextResolve(specifier, context);
