/** Where the code of a plugin lies: a URL of a file, or the beginning of one that ends in `/`. */
export interface PluginPlace {
  readonly plugin: string;
  readonly url: string;
}

/**
 * The plugin whose file is innermost in a stack.
 *
 * @param frames `function (file:///folder/index.js:7:3)`, the innermost first
 */
export function pluginAt(frames: readonly string[], places: readonly PluginPlace[]): string | undefined {
  for (const frame of frames) {
    const place = places.find(({ url }) => frame.includes(url.endsWith('/') ? `(${url}` : `(${url}:`));
    if (place !== undefined) return place.plugin;
  }
  return undefined;
}
