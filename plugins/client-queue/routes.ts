import type { AnyEndpoint } from '../../core/http/endpoint.js';
import type { ClientSite } from './queue-site.js';
import { destinationEndpoints } from './routes/destinations.js';
import { mutationEndpoints } from './routes/mutations.js';
import { quarantineEndpoints } from './routes/quarantine.js';
import { queueEndpoints } from './routes/queue.js';
import { replyEndpoints } from './routes/replies.js';
import { sendingEndpoints } from './routes/sending.js';

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
