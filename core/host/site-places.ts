import { sep } from 'node:path';
import type { SitePlace } from './site-files.js';

const places = new Map<string, string>();

/** Where code of the site was loaded from, folder or file, absolute; with the element of `sitePlugins` that named it. */
export const sitePlaces = (): ReadonlyMap<string, string> => places;

export function rememberSitePlace({ folder, entry }: SitePlace, from: string): void {
  places.set(folder === undefined ? entry : `${folder}${sep}`, from);
}

/** The element of `sitePlugins` that the file belongs to. */
export function sitePlaceOf(file: string): string | undefined {
  return [...places].find(([place]) => (place.endsWith(sep) ? file.startsWith(place) : file === place))?.[1];
}
