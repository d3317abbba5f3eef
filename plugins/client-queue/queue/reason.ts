import type { RecordedReply } from '../../../core/contracts/queue-entry.js';

const longest = 160;

/** What differs from mail to mail, and what stands for it. In this order; all of them run in linear time. */
const differences: readonly (readonly [pattern: RegExp, placeholder: string])[] = [
  [/\bhttps?:\/\/[^\s<>()"']+/gi, 'URL'],
  [/[^\s<>()[\]"',;:=]+@[^\s<>()[\]"',;:]+/g, 'ADDRESS'],
  [/\[?\b(?:\d{1,3}\.){3}\d{1,3}\b\]?/g, 'IP'],
  [/\[?(?:IPv6:)?(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])\]?/gi, 'IP'],
  [/\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi, 'ID'],
  // Letters and digits mixed, or punctuated by a single mark, are an id of somebody; words and dates are not.
  [/(?<![\w.-])(?=[\w.-]*\d)(?=[\w.-]*[A-Za-z])[\w-]{6,}(?:\.[\w-]+)*(?![\w-])/g, 'ID'],
  [/\b0x[0-9a-f]+\b/gi, 'N'],
  [/\d+(?:[.,:]\d+)*/g, 'N'],
];

/**
 * A reply without what differs from mail to mail: addresses, networks, ids, numbers. So that mail which waits for the same
 * reason is counted together. Code and enhanced status code stay.
 */
export function normalReason({ code, status, text }: Pick<RecordedReply, 'code' | 'status' | 'text'>): string {
  const line = text
    .slice(0, 4 * longest)
    .replace(/\s+/g, ' ')
    .trim();
  const words = line.startsWith(`${status} `) ? line.slice(status.length + 1) : line;
  let normal = words;
  for (const [pattern, placeholder] of differences) normal = normal.replace(pattern, placeholder);
  return `${code} ${status} ${normal}`.trim().slice(0, longest);
}
