/** RFC 5322 §3.3, in UTC: `Sat, 21 Nov 2026 00:43:14 +0000`. */
export function mailDate(date: Date): string {
  return date.toUTCString().replace('GMT', '+0000');
}
