import { problem } from '../../../core/problem.js';

/** UTF-8 and nothing else. @throws Problem `invalid` */
export function decodeText(bytes: Buffer, name: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw problem('invalid', { detail: `${name} is not UTF-8.`, cause });
  }
}
