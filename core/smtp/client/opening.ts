import { isIPv6 } from 'node:net';
import { systemClock } from '../../clock.js';
import { normalAddress } from '../../net/ip-address.js';
import type { Reply } from '../protocol/replies.js';
import { Channel, transcriptEntry } from './channel.js';
import {
  allowsClearAuth,
  type CallOptions,
  type ClientCredentials,
  type ClientDeadlines,
  type ClientIdentity,
  type RemoteServer,
  requiresTls,
  standardDeadlines,
} from './remote-server.js';
import { abortFailure, type ClientTls, dial, secure } from './dial.js';
import { type ClientSession, LiveSession } from './session.js';
import { type Capabilities, encodeXtext, noCapabilities, readCapabilities } from './envelope.js';
import { clientFailure, type ClientFailure, isClientFailure, localFailure, refusal } from './failure.js';

/** State of an opening. */
interface Opening {
  readonly channel: Channel;
  readonly server: RemoteServer;
  readonly options: CallOptions;
  readonly deadlines: ClientDeadlines;
  greeting: Reply;
  capabilities: Capabilities;
  tls: ClientTls | undefined;
  /** Of the connection before this one. */
  readonly tlsFailure: ClientFailure | undefined;
}

const helloName = /^(?:[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[A-Za-z0-9:.]+\])$/;

/**
 * Dials, reads the greeting, sends EHLO or LHLO (HELO where EHLO is refused), starts TLS, sends XCLIENT and
 * authenticates, as the server demands. Where opportunistic TLS fails or hangs in the handshake, it dials again and
 * stays in clear text.
 *
 * Rejects with a `ClientFailure` and leaves nothing open.
 */
export async function openSession(server: RemoteServer, options: CallOptions = {}): Promise<ClientSession> {
  if (!helloName.test(server.helloName) || server.helloName.length > 255) {
    throw localFailure('hello', 'The name to introduce ourselves by is no domain');
  }
  const opened = await attempt(server, options);
  if (!isClientFailure(opened)) return opened;
  const maySpeakClear = server.tls.mode === 'opportunistic' && !requiresTls(server);
  const isOfTls = opened.kind === 'tls' || (opened.kind === 'timeout' && opened.step === 'starttls');
  if (!isOfTls || !maySpeakClear) throw opened;
  const again = await attempt({ ...server, tls: { ...server.tls, mode: 'never' } }, options, opened);
  if (isClientFailure(again)) throw again;
  return again;
}

async function attempt(
  server: RemoteServer,
  options: CallOptions,
  tlsFailure?: ClientFailure,
): Promise<LiveSession | ClientFailure> {
  const { clock = systemClock, signal, transcript } = options;
  const deadlines = { ...standardDeadlines, ...options.deadlines };
  const since = clock.monotonic();
  const payload = `CONNECT ${server.address}:${server.port}`;
  try {
    const socket = await dial(server, { ms: Math.min(deadlines.connectMs, deadlines.attemptMs), signal });
    const channel = new Channel(socket, clock, transcript);
    return await openChannel({ channel, server, options, deadlines, since, tlsFailure });
  } catch (error) {
    if (!isClientFailure(error)) throw error;
    const ms = Math.round(clock.monotonic() - since);
    transcript?.add(transcriptEntry({ step: 'connect', payload, ms }, undefined, error));
    return error;
  }
}

async function openChannel(
  given: Pick<Opening, 'channel' | 'server' | 'options' | 'deadlines' | 'tlsFailure'> & { readonly since: number },
): Promise<LiveSession | ClientFailure> {
  const { channel, deadlines, since } = given;
  const { signal } = given.options;
  const aborted = (): void => channel.fail(abortFailure(channel.step));
  signal?.addEventListener('abort', aborted, { once: true });
  const opening: Opening = { ...given, greeting: noReply, capabilities: noCapabilities, tls: undefined };
  channel.attempt(Math.max(0, deadlines.attemptMs - (channel.clock.monotonic() - since)));
  if (signal?.aborted === true) aborted();
  const failure = await runSteps(opening).catch((error: unknown) =>
    localFailure(channel.step, 'The call failed here', error),
  );
  signal?.removeEventListener('abort', aborted);
  if (failure !== undefined) {
    channel.close();
    return failure;
  }
  channel.rest();
  return new LiveSession({ ...opening, since, openingMs: channel.clock.monotonic() - since });
}

const noReply: Reply = { code: 0, status: null, lines: [] };

async function runSteps(opening: Opening): Promise<ClientFailure | undefined> {
  const { server, options } = opening;
  return (
    (server.tls.mode === 'implicit' ? await encrypt(opening) : undefined) ??
    (await greet(opening)) ??
    (await hello(opening)) ??
    (server.tls.mode === 'implicit' ? undefined : await startTls(opening)) ??
    (options.identity === undefined ? undefined : await identify(opening)) ??
    (server.auth === undefined ? undefined : await authenticate(opening))
  );
}

async function encrypt(opening: Opening): Promise<ClientFailure | undefined> {
  const { channel, server, deadlines } = opening;
  opening.tls = await secure(channel, server, deadlines.tlsMs);
  return channel.failure;
}

async function greet(opening: Opening): Promise<ClientFailure | undefined> {
  const answer = await opening.channel.expect('greeting', opening.deadlines.greetingMs);
  if (isClientFailure(answer)) return answer;
  opening.greeting = answer;
  return answer.code >= 400 ? refusal('greeting', answer) : undefined;
}

async function hello(opening: Opening): Promise<ClientFailure | undefined> {
  const { channel, server, deadlines } = opening;
  if (server.extensions === false && server.protocol === 'smtp') return plainHello(opening);
  const verb = server.protocol === 'lmtp' ? 'LHLO' : 'EHLO';
  const answer = await channel.ask('hello', `${verb} ${server.helloName}`, deadlines.helloMs);
  if (isClientFailure(answer)) return answer;
  if (answer.code < 300) {
    const offered = readCapabilities(answer);
    opening.capabilities = opening.options.chunking === false ? { ...offered, chunking: false } : offered;
    return undefined;
  }
  // RFC 5321 §3.2: a server without EHLO may have HELO.
  if (verb === 'LHLO' || answer.code < 500) return refusal('hello', answer);
  return plainHello(opening);
}

async function plainHello(opening: Opening): Promise<ClientFailure | undefined> {
  const { channel, server, deadlines } = opening;
  const plain = await channel.ask('hello', `HELO ${server.helloName}`, deadlines.helloMs);
  if (isClientFailure(plain)) return plain;
  opening.capabilities = noCapabilities;
  return plain.code >= 400 ? refusal('hello', plain) : undefined;
}

async function startTls(opening: Opening): Promise<ClientFailure | undefined> {
  const { channel, server, deadlines, capabilities } = opening;
  const required = requiresTls(server);
  if (server.tls.mode === 'never') return required ? noTls('TLS is switched off, and needed to sign in') : undefined;
  if (!capabilities.startTls) return required ? noTls('TLS is required, and the server does not offer it') : undefined;
  const answer = await channel.ask('starttls', 'STARTTLS', deadlines.tlsMs);
  if (isClientFailure(answer)) return answer;
  if (answer.code >= 400) return required ? refusal('starttls', answer) : undefined;
  // Capabilities from before TLS are void (RFC 3207 §4.2).
  opening.capabilities = noCapabilities;
  return (await encrypt(opening)) ?? (await hello(opening));
}

/** XCLIENT starts the session anew; a server that refuses EHLO then refuses that client. */
async function identify(opening: Opening): Promise<ClientFailure | undefined> {
  const { channel, options, deadlines, capabilities } = opening;
  const line = options.identity && identityLine(options.identity, capabilities);
  if (line === undefined) return undefined;
  const answer = await channel.ask('xclient', line, deadlines.helloMs);
  if (isClientFailure(answer)) return answer;
  if (answer.code >= 400) return refusal('xclient', answer);
  const failure = await hello(opening);
  return failure?.reply === undefined ? failure : refusal('xclient', failure.reply);
}

function authenticate(opening: Opening): Promise<ClientFailure | undefined> {
  const { channel, server, deadlines, capabilities, tls } = opening;
  const { auth } = server;
  if (auth === undefined) return Promise.resolve(undefined);
  if (tls === undefined && !allowsClearAuth(server)) {
    return Promise.resolve(noTls('Credentials are not sent in clear'));
  }
  return signIn(channel, capabilities, auth, deadlines.authMs);
}

/** 4.7.4: a security feature that is not supported (RFC 3463 §3.8). */
function noTls(text: string): ClientFailure {
  return clientFailure({ kind: 'tls', step: 'starttls', code: 451, status: '4.7.4', text });
}

/** The XCLIENT line with the attributes that the server accepts; undefined when there are none. */
function identityLine(identity: ClientIdentity, { xclient }: Capabilities): string | undefined {
  const attributes = Object.entries(identity)
    .filter(([name]) => xclient.includes(name))
    .map(([name, value]) => `${name}=${encodeXtext(name === 'ADDR' ? address(String(value)) : String(value))}`);
  return attributes.length === 0 ? undefined : `XCLIENT ${attributes.join(' ')}`;
}

function address(ip: string): string {
  const normal = normalAddress(ip);
  return isIPv6(normal) ? `IPV6:${normal}` : normal;
}

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const masked = '****';

/** AUTH PLAIN (RFC 4616), else LOGIN. Returns the failure, if any. The caller ensures TLS. */
async function signIn(
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
