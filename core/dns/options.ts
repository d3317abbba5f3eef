import { z } from 'zod';
import { isNameServer } from './system-resolver.js';

export const nameServer = z
  .string()
  .refine(isNameServer, 'must be an IP address, perhaps with a port: 192.0.2.1, [2001:db8::1]:5353');

/** Whom plugins ask. */
export const DnsOptions = z.strictObject({
  servers: z
    .array(nameServer)
    .default([])
    .describe(
      'Name servers that plugins and the relay queue ask, "192.0.2.1" or "192.0.2.1:5353"; those of the system when empty. Lists of addresses often refuse public ones. The relay queue may have others: plugins.client-queue.resolver.',
    ),
});

export type DnsSettings = z.output<typeof DnsOptions>;
