import { z } from 'zod';

const count = (usual: number, most: number) => z.int().min(1).max(most).default(usual);

/** Bounds of everything a client can make this server do. Times are in seconds unless the name says otherwise. */
export const LimitOptions = z.strictObject({
  messageBytes: count(50 * 1024 * 1024, 2 ** 40).describe(
    'Largest message, in bytes: announced by SIZE, refused with 552. A quarter more is read before the connection is cut.',
  ),
  recipients: count(1000, 1_000_000).describe('Recipients of one message; further ones get 452.'),
  transactions: count(10_000, 1_000_000).describe('Messages of one session; then 421.'),
  errors: count(20, 10_000).describe('Error replies of one session; the next one is 421 and the end.'),
  clients: count(4000, 1_000_000).describe('Sessions at once, over all listeners; further ones get 421.'),
  clientsPerAddress: count(50, 1_000_000).describe('Sessions at once from one address; further ones get 421.'),
  authFailures: count(3, 1000).describe('Failed sign-ins of one session; the next one is 421 and the end.'),
  authFailuresPerAddress: count(20, 1_000_000).describe(
    'Failed sign-ins from one address within authWindowSeconds; then AUTH gets 454.',
  ),
  authWindowSeconds: count(600, 86_400).describe('How long failed sign-ins of an address are remembered.'),
  authDelaySeconds: z
    .array(z.number().min(0).max(60))
    .max(10)
    .default([1, 2, 4])
    .describe('How long the answer to the first, second, … failed sign-in of a session waits.'),
  exemptLoopback: z
    .boolean()
    .default(true)
    .describe('Leave loopback clients out of the limits per address and of the sign-in delays.'),
  commandSeconds: count(300, 3600).describe('Time for one command line to arrive whole.'),
  dataGraceSeconds: z
    .int()
    .min(0)
    .max(3600)
    .default(60)
    .describe('After this time DATA must have come at dataBytesPerSecond at least.'),
  dataBytesPerSecond: count(500, 1_000_000).describe('Least average rate of DATA, in bytes a second.'),
  tlsSeconds: count(30, 600).describe('Time for a TLS handshake.'),
  handlerSeconds: count(30, 600).describe('Time for this server to decide on a command; then 451.'),
  deliverySeconds: count(300, 3600).describe('Time for this server to take over a received message; then 451.'),
  lineBytes: count(65_536, 16 * 1024 * 1024).describe('Longest line of a message; a longer one is 554.'),
  headerFields: count(5000, 1_000_000).describe('Header fields of a message; more are 552.'),
  headerBytes: count(1024 * 1024, 64 * 1024 * 1024).describe('Size of the header of a message; more is 552.'),
  hops: count(100, 1000).describe('Received header fields of a message; more are a loop, 554.'),
});

export type SmtpLimits = z.output<typeof LimitOptions>;
