import type { AnyEndpoint } from '../../core/http/endpoint.js';
import type { QueueSite } from './queue-site.js';
import { destinationEndpoints } from './routes/destinations.js';
import { mutationEndpoints } from './routes/mutations.js';
import { queueEndpoints } from './routes/queue.js';
import { replyEndpoints } from './routes/replies.js';
import { sendingEndpoints, type SendingSite } from './routes/sending.js';

/** Everything below `/client`. */
export function clientEndpoints(site: QueueSite & SendingSite): readonly AnyEndpoint[] {
  return [
    ...sendingEndpoints(site),
    ...queueEndpoints(site),
    ...mutationEndpoints(site),
    ...destinationEndpoints(site),
    ...replyEndpoints(),
  ];
}
