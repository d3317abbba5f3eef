/** Reasons to hold a message whose bytes are not what was accepted. They are stored in entries on disk. */
export const damageHolds = {
  missing: 'Its message is missing in the queue.',
  damaged: 'Its message is damaged; what is left of it is in quarantine.',
  either: 'Its message is missing or damaged.',
} as const;

const messageHolds: ReadonlySet<string> = new Set(Object.values(damageHolds));
const crashHold = /^The server has ended \d+ times/;

/** True when the message is damaged, or processes died while sending it. */
export function isDamageHold(hold: string | null): boolean {
  return hold !== null && (messageHolds.has(hold) || crashHold.test(hold));
}
