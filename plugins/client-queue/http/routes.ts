import type { AnyEndpoint } from '../../../core/http/endpoint.js';
import type { ClientSite } from './queue-site.js';
import { destinationEndpoints } from './destinations.js';
import { mutationEndpoints } from './mutations.js';
import { quarantineEndpoints } from './quarantine.js';
import { queueEndpoints } from './queue-endpoints.js';
import { replyEndpoints } from './replies.js';
import { sendingEndpoints } from './sending.js';

/** Everything below `/client`. */
export function clientEndpoints(site: ClientSite): readonly AnyEndpoint[] {
  return [
    ...sendingEndpoints(site),
    ...quarantineEndpoints(site),
    ...queueEndpoints(site),
    ...mutationEndpoints(site),
    ...destinationEndpoints(site),
    ...replyEndpoints(site),
  ];
}
