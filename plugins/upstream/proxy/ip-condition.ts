import { normalAddress } from '../../../core/net/ip-address.js';
import { parseNetworks } from '../../../core/net/networks.js';
import { isProblem } from '../../../core/problem.js';
import { compilePattern } from '../../../core/text/pattern.js';

/** What is written of digits, dots, colons and one slash is an address or a network; everything else is a pattern. */
export const isNetworkText = (text: string): boolean =>
  /^[0-9A-Fa-f:.]+(?:\/\d*)?$/.test(text) && !/^[A-Fa-f.]+$/.test(text);

/** What is wrong with a network; undefined when nothing is. */
export function networkFault(text: string): string | undefined {
  try {
    parseNetworks([text]);
    return undefined;
  } catch (error) {
    if (!isProblem(error)) throw error;
    return error.message;
  }
}

/** @param text of a rule that was checked */
export function ipCondition(text: string): (ip: string) => boolean {
  if (isNetworkText(text)) {
    const networks = parseNetworks([text]);
    return (ip) => networks.has(ip);
  }
  const pattern = compilePattern(text, { ignoreCase: true });
  return (ip) => pattern.matches(normalAddress(ip));
}
