import { isIPv4, isIPv6, type Socket } from 'node:net';
import { normalAddress } from '../../net/ip-address.js';

/** The client as the proxy reports it. */
export interface ForwardedPeer {
  readonly address: string;
  readonly port: number;
}

export type ProxyHeader =
  | { readonly form: 'incomplete' }
  | { readonly form: 'invalid'; readonly reason: string }
  /** `source` is absent where the proxy speaks for itself (LOCAL, UNKNOWN): then its own address counts. */
  | { readonly form: 'valid'; readonly length: number; readonly source?: ForwardedPeer };

const signature = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const maxTextLength = 107;
/** Addresses, and additions of proxies: names, certificates, identifiers. */
const maxBinaryLength = 4096;
const timeoutMs = 5_000;

const incomplete: ProxyHeader = { form: 'incomplete' };
const invalid = (reason: string): ProxyHeader => ({ form: 'invalid', reason });

/** Reads the first bytes of a connection as a header of the PROXY protocol, version 1 (text) or 2 (binary). */
export function parseProxyHeader(bytes: Buffer): ProxyHeader {
  const compared = Math.min(bytes.length, signature.length);
  if (bytes.subarray(0, compared).equals(signature.subarray(0, compared))) return parseBinary(bytes);
  return parseText(bytes);
}

function parseText(bytes: Buffer): ProxyHeader {
  const start = 'PROXY ';
  const text = bytes.subarray(0, maxTextLength).toString('latin1');
  if (!text.startsWith(start.slice(0, text.length))) return invalid('it is no PROXY header');
  const end = text.indexOf('\r\n');
  if (end === -1) return bytes.length < maxTextLength ? incomplete : invalid('the line is too long');
  const [, family = '', source = '', destination = '', sourcePort = '', destinationPort = '', ...more] = text
    .slice(0, end)
    .split(' ');
  const length = end + 2;
  if (family === 'UNKNOWN') return { form: 'valid', length };
  const isAddress = family === 'TCP4' ? isIPv4 : family === 'TCP6' ? isIPv6 : () => false;
  const isPort = (port: string): boolean => /^(0|[1-9]\d{0,4})$/.test(port) && Number(port) <= 65_535;
  const isValid =
    [source, destination].every(isAddress) && [sourcePort, destinationPort].every(isPort) && more.length === 0;
  if (!isValid || source.includes('%')) return invalid('the line is malformed');
  return { form: 'valid', length, source: { address: normalAddress(source), port: Number(sourcePort) } };
}

function parseBinary(bytes: Buffer): ProxyHeader {
  if (bytes.length < 16) return incomplete;
  const [versionAndCommand = 0, family = 0] = bytes.subarray(12, 14);
  const bodyLength = bytes.readUInt16BE(14);
  const length = 16 + bodyLength;
  if (versionAndCommand !== 0x20 && versionAndCommand !== 0x21) return invalid('its version or command is unknown');
  if (length > maxBinaryLength) return invalid(`it is longer than ${maxBinaryLength} bytes`);
  if (bytes.length < length) return incomplete;
  if (versionAndCommand === 0x20 || family === 0x00 || family === 0x31) return { form: 'valid', length };
  const addressLength = family === 0x11 ? 4 : family === 0x21 ? 16 : undefined;
  if (addressLength === undefined) return invalid('it is not about TCP');
  if (bodyLength < 2 * addressLength + 4) return invalid('its addresses are cut');
  const source = bytes.subarray(16, 16 + addressLength);
  const port = bytes.readUInt16BE(16 + 2 * addressLength);
  return { form: 'valid', length, source: { address: addressText(source), port } };
}

function addressText(bytes: Buffer): string {
  if (bytes.length === 4) return bytes.join('.');
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(2 * at).toString(16));
  return normalAddress(groups.join(':'));
}

/**
 * Takes the header off a connection and leaves the rest on the socket. Destroys the socket and rejects with the reason
 * when the header is invalid or late.
 */
export function readProxyHeader(socket: Socket): Promise<ForwardedPeer | undefined> {
  return new Promise((resolve, reject) => {
    let bytes = Buffer.alloc(0);
    const stop = (): void => {
      clearTimeout(timer);
      socket.off('readable', read).off('end', ended).off('close', ended);
    };
    const fail = (reason: string): void => {
      stop();
      socket.destroy();
      reject(new Error(reason));
    };
    const ended = (): void => fail('the connection ended before its PROXY header');
    const timer = setTimeout(() => fail('no PROXY header came in time'), timeoutMs);
    const read = (): void => {
      for (let chunk: unknown = socket.read(); chunk instanceof Buffer; chunk = socket.read()) {
        bytes = Buffer.concat([bytes, chunk]);
      }
      const header = parseProxyHeader(bytes);
      if (header.form === 'invalid') fail(header.reason);
      if (header.form !== 'valid') return;
      stop();
      if (bytes.length > header.length) socket.unshift(bytes.subarray(header.length));
      // The stream removes its listener for 'readable' on the next tick.
      setImmediate(() => resolve(header.source));
    };
    socket.on('error', () => undefined);
    socket.on('readable', read).once('end', ended).once('close', ended);
  });
}
