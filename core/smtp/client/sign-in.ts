import type { Capabilities } from './capabilities.js';
import type { Channel } from './channel.js';
import type { ClientCredentials } from './destination.js';
import { clientFailure, isClientFailure, localFailure, refusal, type ClientFailure } from './failure.js';

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const masked = '****';

/** AUTH PLAIN (RFC 4616), else LOGIN. Returns what went wrong, if something did. The caller has seen to TLS. */
export async function signIn(
  channel: Channel,
  capabilities: Capabilities,
  { username, password }: ClientCredentials,
  ms: number,
): Promise<ClientFailure | undefined> {
  if (`${username}${password}`.includes('\0')) return localFailure('auth', 'The credentials hold a NUL');
  const offered = capabilities.auth;
  if (offered.includes('PLAIN')) {
    const line = `AUTH PLAIN ${base64(`\0${username}\0${password}`)}`;
    return verdict(channel, await channel.ask('auth', line, ms, `AUTH PLAIN ${masked}`));
  }
  if (!offered.includes('LOGIN')) return noMechanism();
  for (const [line, shown] of loginLines(username, password)) {
    const answer = await channel.ask('auth', line, ms, shown);
    if (isClientFailure(answer) || answer.code !== 334 || line === base64(password)) return verdict(channel, answer);
  }
  return undefined;
}

function loginLines(username: string, password: string): readonly (readonly [line: string, shown: string])[] {
  return [
    ['AUTH LOGIN', 'AUTH LOGIN'],
    [base64(username), masked],
    [base64(password), masked],
  ];
}

function verdict(channel: Channel, answer: Awaited<ReturnType<Channel['ask']>>): ClientFailure | undefined {
  if (isClientFailure(answer)) return answer;
  if (answer.code >= 400) return refusal('auth', answer);
  if (answer.code < 300) return undefined;
  return localFailure('auth', `The server asked for more than ${channel.step} has to say`);
}

function noMechanism(): ClientFailure {
  const text = 'The server offers no mechanism to sign in that is known here (PLAIN, LOGIN)';
  return clientFailure({ kind: 'capability', step: 'auth', code: 454, status: '4.7.0', text });
}
