import { z } from 'zod';
import { LimitOptions } from './limit-options.js';
import { ListenerOptions, type ListenerSettings } from './listener-options.js';

/** How mail comes in. */
export const SmtpOptions = z.strictObject({
  listeners: z
    .array(ListenerOptions)
    .min(1, 'name at least one listener, for example [{ mode: "mx", port: 2525 }]')
    .prefault([{ mode: 'mx' }])
    .transform(withDistinctNames)
    .describe('Where mail comes in.'),
  limits: LimitOptions.prefault({}).describe('Bounds of sessions and messages.'),
  relayNetworks: z
    .array(z.string().min(1))
    .default([])
    .describe('Networks whose mail is relayed without signing in: ["192.0.2.0/24", "2001:db8::/32"].'),
  lineEndings: z
    .enum(['normalise', 'reject'])
    .default('normalise')
    .describe('A bare CR or LF in a message becomes CRLF, or makes the message be refused with 554.'),
  longLines: z
    .enum(['encode', 'refuse', 'pass'])
    .default('encode')
    .describe(
      'What becomes of lines over 998 octets in mail of users (RFC 5321 §4.5.3.1.6): their parts are encoded as quoted-printable or base64 and header fields folded, the message is refused with 554, or it is passed on as it is.',
    ),
  shadow: z
    .array(z.string().min(1))
    .default([])
    .describe('Plugins whose hooks are asked, and their verdicts written to the log but not followed.'),
  earlyData: z
    .enum(['refuse', 'accept'])
    .default('refuse')
    .describe('What to do with a client that sends message text before it was asked to (354).'),
});

export type SmtpSettings = z.output<typeof SmtpOptions>;

/** Listeners of one name would share their metrics and health: the second `mx` becomes `mx-2`. */
function withDistinctNames(listeners: readonly ListenerSettings[]): readonly ListenerSettings[] {
  const taken = new Set<string>();
  return listeners.map((listener) => {
    let { name } = listener;
    for (let number = 2; taken.has(name); number += 1) name = `${listener.name}-${number}`;
    taken.add(name);
    return { ...listener, name };
  });
}
