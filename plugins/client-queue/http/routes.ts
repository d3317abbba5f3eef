import type { AnyEndpoint } from '../../../core/http/endpoint.js';
import type { ClientDeps } from './client-deps.js';
import { destinationEndpoints } from './destinations.js';
import { jobEndpoints } from './jobs.js';
import { messagePageEndpoints } from './message-page.js';
import { mutationEndpoints } from './mutations.js';
import { quarantineEndpoints } from './quarantine.js';
import { queueEndpoints } from './queue-endpoints.js';
import { replyEndpoints } from './replies.js';
import { sendingEndpoints } from './sending.js';

/** Everything below `/client`. */
export function clientEndpoints(deps: ClientDeps): readonly AnyEndpoint[] {
  return [
    ...sendingEndpoints(deps),
    ...quarantineEndpoints(deps),
    ...queueEndpoints(deps),
    ...messagePageEndpoints(deps),
    ...jobEndpoints(deps),
    ...mutationEndpoints(deps),
    ...destinationEndpoints(deps),
    ...replyEndpoints(deps),
  ];
}
