import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../host/installation.js';
import type { Plugin } from '../plugin.js';
import { siteUrlOf } from '../host/site-plugins.js';
import type { PluginPlace } from './plugin-place.js';

/** Where the code of each plugin lies: the site's where it was loaded from, the others in this package. */
export function placesOf(plugins: readonly Plugin[]): readonly PluginPlace[] {
  return plugins.map((plugin) => ({
    plugin: plugin.name,
    url: siteUrlOf(plugin) ?? `${pathToFileURL(join(packageRoot, 'dist', 'plugins', plugin.name)).href}/`,
  }));
}
