import { normalAddress } from '../../../core/net/ip-address.js';
import { parseNetworks } from '../../../core/net/networks.js';
import { isProblem } from '../../../core/problem.js';
import { compilePattern } from '../../../core/text/pattern.js';

/** Text of digits, dots, colons and one slash is an address or network; other text is a pattern. */
export const isNetworkText = (text: string): boolean =>
  /^[0-9A-Fa-f:.]+(?:\/\d*)?$/.test(text) && !/^[A-Fa-f.]+$/.test(text);

/** Error of an invalid network; undefined when valid. */
export function networkFault(text: string): string | undefined {
  try {
    parseNetworks([text]);
    return undefined;
  } catch (error) {
    if (!isProblem(error)) throw error;
    return error.message;
  }
}

/** @param text of a validated rule */
export function ipCondition(text: string): (ip: string) => boolean {
  if (isNetworkText(text)) {
    const networks = parseNetworks([text]);
    return (ip) => networks.has(ip);
  }
  const pattern = compilePattern(text, { ignoreCase: true });
  return (ip) => pattern.matches(normalAddress(ip));
}
