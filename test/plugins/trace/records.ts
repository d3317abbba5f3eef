import type { TraceRecord } from '../../../plugins/trace/trace-record.js';

export const idOf = (number: number): string => `0${String(number).padStart(19, '0')}`;

/** A message from one address to another, with a number in all of its keys. */
export function acceptedRecord(number: number, at = Date.UTC(2026, 10, 21) + number): TraceRecord {
  return {
    kind: 'accepted',
    at,
    id: idOf(number),
    session: { id: `s${number}`, since: new Date(at).toISOString(), listener: 'mx', remote: '192.0.2.1' },
    messageId: `<${number}@far.example>`,
    sender: 'Anna@far.example',
    recipients: [{ address: `user${number}@example.org`, target: 'mailbox', destination: `user${number}@example.org` }],
    size: 1000,
    ms: 3,
  };
}
