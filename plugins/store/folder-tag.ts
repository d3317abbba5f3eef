import { setTimeout as wait } from 'node:timers/promises';
import type { EndpointRequest } from '../../core/http/endpoint.js';
import { folderOf, type StoreSite } from './store-endpoints.js';

interface Asked {
  readonly params: { readonly domain: string; readonly user: string; readonly folder: string };
  readonly request: EndpointRequest;
}

const tries = 4;
const waitMs = 60;

/**
 * The tag of a folder's present state for `If-Match`. Lists have one for each of their queries: those of the present state
 * begin alike, and any of them will do.
 */
export function folderEtag({ reader, names }: StoreSite) {
  return async ({ params, request }: Asked): Promise<string | undefined> => {
    const mailbox = await names.parse(params);
    let version = await reader.version(mailbox, folderOf(params));
    // A state that is a moment old has no tag yet.
    for (let attempt = 1; version === undefined && attempt < tries; attempt++) {
      await wait(waitMs);
      version = await reader.version(mailbox, folderOf(params));
    }
    if (version === undefined) return undefined;
    return tagsIn(request.ifMatch).find((tag) => tag === version || tag.startsWith(`${version}.`)) ?? version;
  };
}

function tagsIn(field = ''): readonly string[] {
  return field.split(',').map((tag) =>
    tag
      .trim()
      .replace(/^W\//, '')
      .replace(/^"(.*)"$/, '$1'),
  );
}
