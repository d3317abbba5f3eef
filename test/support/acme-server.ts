import { createHash, createPublicKey, generateKeyPairSync, type JsonWebKey, randomBytes, verify } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:tls';
import { text } from 'node:stream/consumers';
import { makeCertificate } from '../../core/net/x509.js';
import { systemClock } from '../../core/clock.js';
import { atEnd, type Ending } from './ending.js';

const dayMs = 86_400_000;

/** What the authority does wrong, once each: the next request that it fits. */
type Fault = 'badNonce' | 'rateLimited' | 'invalidOrder';

interface Order {
  readonly names: readonly string[];
  readonly tokens: readonly string[];
  readonly accepted: Set<string>;
  status: 'pending' | 'ready' | 'valid' | 'invalid';
  certificate?: string;
}

interface SignedRequest {
  readonly payload: unknown;
  readonly thumbprint: string;
  readonly account: string | undefined;
}

interface Reply {
  readonly status: number;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Refusal with a problem of ACME (RFC 8555 §6.7). */
class Refusal extends Error {
  readonly reply: Reply;

  constructor(status: number, type: string, headers: Readonly<Record<string, string>> = {}) {
    super(type);
    this.reply = {
      status,
      body: { type: `urn:ietf:params:acme:error:${type}`, detail: `refused: ${type}` },
      headers: { 'Content-Type': 'application/problem+json', ...headers },
    };
  }
}

/** A small certificate authority that speaks RFC 8555 over http on loopback, and fetches challenges for real. */
export class AcmeServer {
  readonly directory: string;
  /** Certificates issued. */
  issued = 0;
  /** Paths of the signed requests, in order. */
  readonly paths: string[] = [];
  /** Where every host name is found. */
  readonly challengePorts = { http: 0, https: 0 };
  /** Lifetime of certificates. */
  validMs = 90 * dayMs;
  /** Called when a certificate was issued, before the order says so. */
  onIssued: () => void = () => undefined;
  readonly faults: Fault[] = [];
  stop: () => void = () => undefined;
  readonly authority: string;
  readonly #base: string;
  readonly #key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  readonly #nonces = new Set<string>();
  readonly #accounts = new Map<string, JsonWebKey>();
  readonly #orders: Order[] = [];

  private constructor(base: string) {
    this.#base = base;
    this.directory = `${base}/directory`;
    const now = systemClock.now();
    const life = { from: now - dayMs, to: now + 3650 * dayMs };
    this.authority = makeCertificate({ names: ['test authority'], key: this.#key, ...life, authority: true });
  }

  static async start(test: Ending): Promise<AcmeServer> {
    const server = createServer((request, response) => void acme.#answer(request, response));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const acme = new AcmeServer(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    acme.stop = () => {
      server.close();
      server.closeAllConnections();
    };
    atEnd(test, () => acme.stop());
    return acme;
  }

  #hasFault(fault: Fault): boolean {
    const at = this.faults.indexOf(fault);
    if (at >= 0) this.faults.splice(at, 1);
    return at >= 0;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '';
    const reply = await this.#replyTo(path, request).catch((error: unknown) => {
      if (error instanceof Refusal) return error.reply;
      return { status: 500, body: String(error) };
    });
    const nonce = randomBytes(12).toString('base64url');
    this.#nonces.add(nonce);
    const isText = typeof reply.body === 'string';
    const type = isText ? 'application/pem-certificate-chain' : 'application/json';
    response.writeHead(reply.status, { 'Replay-Nonce': nonce, 'Content-Type': type, ...reply.headers });
    response.end(isText ? reply.body : JSON.stringify(reply.body ?? {}));
  }

  async #replyTo(path: string, request: IncomingMessage): Promise<Reply> {
    const at = (name: string) => `${this.#base}/${name}`;
    if (path === '/directory') {
      return {
        status: 200,
        body: { newNonce: at('nonce'), newAccount: at('account'), newOrder: at('order'), meta: {} },
      };
    }
    if (path === '/nonce') return { status: 200 };
    if (request.method !== 'POST') throw new Refusal(405, 'malformed');
    const signed = this.#verify(path, await text(request));
    this.paths.push(path);
    return this.#reply(path, signed);
  }

  async #reply(path: string, { payload, thumbprint, account }: SignedRequest): Promise<Reply> {
    if (path === '/account')
      return { status: 201, body: {}, headers: { Location: `${this.#base}/account/${thumbprint}` } };
    if (account === undefined) throw new Refusal(401, 'accountDoesNotExist');
    if (path === '/order') return this.#newOrder(payload);
    const [, kind = '', index = '', part = '0'] = path.split('/');
    const order = this.#orders[Number(index)];
    if (order === undefined) throw new Refusal(404, 'malformed');
    if (kind === 'authz') return { status: 200, body: this.#authorization(order, Number(index), Number(part)) };
    if (kind === 'challenge') return this.#challenge(order, path, thumbprint);
    if (kind === 'finalize') return this.#finalize(order, Number(index), payload);
    if (kind === 'certificate') return { status: 200, body: order.certificate };
    return { status: 200, body: this.#describe(order, Number(index)), headers: { 'Retry-After': '0' } };
  }

  /** Checks nonce, address and signature of a JWS (RFC 8555 §6.2). */
  #verify(path: string, body: string): SignedRequest {
    const jws = JSON.parse(body) as {
      readonly protected: string;
      readonly payload: string;
      readonly signature: string;
    };
    const header = JSON.parse(Buffer.from(jws.protected, 'base64url').toString()) as {
      readonly alg: string;
      readonly nonce: string;
      readonly url: string;
      readonly kid?: string;
      readonly jwk?: JsonWebKey;
    };
    if (!this.#nonces.delete(header.nonce) || this.#hasFault('badNonce')) throw new Refusal(400, 'badNonce');
    if (path === '/order' && this.#hasFault('rateLimited'))
      throw new Refusal(429, 'rateLimited', { 'Retry-After': '7200' });
    const jwk = header.jwk ?? this.#accounts.get(header.kid ?? '');
    if (jwk === undefined) throw new Refusal(400, 'accountDoesNotExist');
    const key = { key: createPublicKey({ key: jwk, format: 'jwk' }), dsaEncoding: 'ieee-p1363' as const };
    const content = Buffer.from(`${jws.protected}.${jws.payload}`);
    const isSigned = verify('sha256', content, key, Buffer.from(jws.signature, 'base64url'));
    if (!isSigned || header.alg !== 'ES256' || header.url !== `${this.#base}${path}`)
      throw new Refusal(400, 'malformed');
    const { crv, kty, x, y } = jwk;
    const thumbprint = createHash('sha256').update(JSON.stringify({ crv, kty, x, y })).digest('base64url');
    if (path === '/account') this.#accounts.set(`${this.#base}/account/${thumbprint}`, jwk);
    const payload: unknown =
      jws.payload === '' ? undefined : JSON.parse(Buffer.from(jws.payload, 'base64url').toString());
    return { payload, thumbprint, account: header.kid };
  }

  #newOrder(payload: unknown): Reply {
    const { identifiers } = payload as { readonly identifiers: readonly { readonly value: string }[] };
    const names = identifiers.map(({ value }) => value);
    const tokens = names.map(() => randomBytes(16).toString('base64url'));
    const order: Order = { names, tokens, accepted: new Set(), status: 'pending' };
    if (this.#hasFault('invalidOrder')) order.status = 'invalid';
    const index = this.#orders.push(order) - 1;
    return {
      status: 201,
      body: this.#describe(order, index),
      headers: { Location: `${this.#base}/orders/${index}` },
    };
  }

  #describe(order: Order, index: number) {
    return {
      status: order.status,
      authorizations: order.names.map((_, part) => `${this.#base}/authz/${index}/${part}`),
      finalize: `${this.#base}/finalize/${index}`,
      ...(order.status === 'valid' && { certificate: `${this.#base}/certificate/${index}` }),
      ...(order.status === 'invalid' && { error: { detail: 'the order is refused' } }),
    };
  }

  #authorization(order: Order, index: number, part: number) {
    const name = order.names[part] ?? '';
    const isRefused = order.status === 'invalid';
    return {
      status: order.accepted.has(name) ? 'valid' : isRefused ? 'invalid' : 'pending',
      identifier: { type: 'dns', value: name },
      challenges: ['http-01', 'tls-alpn-01'].map((type) => ({
        type,
        url: `${this.#base}/challenge/${index}/${part}/${type}`,
        token: order.tokens[part],
        ...(isRefused && { error: { detail: `no answer for ${name}` } }),
      })),
    };
  }

  /** Fetches the answer; the authorization is decided when the reply is sent. */
  async #challenge(order: Order, path: string, thumbprint: string): Promise<Reply> {
    const [, , , part = '', type = ''] = path.split('/');
    const name = order.names[Number(part)] ?? '';
    const token = order.tokens[Number(part)] ?? '';
    const expected = `${token}.${thumbprint}`;
    const isRight =
      type === 'http-01'
        ? (await fetchAnswer(this.challengePorts.http, name, token)) === expected
        : await answersTls(this.challengePorts.https, name, expected);
    if (isRight) order.accepted.add(name);
    else order.status = 'invalid';
    if (order.accepted.size === order.names.length) order.status = 'ready';
    return { status: 200, body: {} };
  }

  #finalize(order: Order, index: number, payload: unknown): Reply {
    if (order.status !== 'ready') throw new Refusal(403, 'orderNotReady');
    const { csr } = payload as { readonly csr: string };
    const { key, names } = readRequest(Buffer.from(csr, 'base64url'));
    const [first, ...others] = names;
    if (first === undefined || names.toSorted().join() !== order.names.toSorted().join())
      throw new Refusal(400, 'badCSR');
    const now = systemClock.now();
    const issuer = { name: 'test authority', key: this.#key };
    const life = { from: now - 60_000, to: now + this.validMs };
    order.certificate = makeCertificate({ names: [first, ...others], key, ...life, issuer }) + this.authority;
    order.status = 'valid';
    this.issued += 1;
    this.onIssued();
    return { status: 200, body: this.#describe(order, index) };
  }
}

async function fetchAnswer(port: number, name: string, token: string): Promise<string> {
  const path = `/.well-known/acme-challenge/${token}`;
  const asked = request({ host: '127.0.0.1', port, path, headers: { Host: name } });
  asked.end();
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  return text(response);
}

/** The handshake of RFC 8737 §3: protocol, name, and the digest in the certificate. */
async function answersTls(port: number, servername: string, keyAuthorization: string): Promise<boolean> {
  const socket = connect({
    host: '127.0.0.1',
    port,
    servername,
    ALPNProtocols: ['acme-tls/1'],
    rejectUnauthorized: false,
  });
  try {
    await once(socket, 'secureConnect');
    const { raw, subjectaltname } = socket.getPeerCertificate();
    const digest = createHash('sha256').update(keyAuthorization).digest();
    const extension = Buffer.concat([Buffer.from('06082b0601050507011f0101ff04220420', 'hex'), digest]);
    return socket.alpnProtocol === 'acme-tls/1' && subjectaltname === `DNS:${servername}` && raw.includes(extension);
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

interface Element {
  readonly tag: number;
  readonly bytes: Buffer;
  readonly content: Buffer;
}

/** The DER elements one after the other (X.690). */
function elements(bytes: Buffer): readonly Element[] {
  const found: Element[] = [];
  for (let at = 0; at < bytes.length;) {
    const [tag = 0, first = 0] = [bytes[at], bytes[at + 1]];
    const sizeBytes = first < 0x80 ? 0 : first & 0x7f;
    const size = sizeBytes === 0 ? first : bytes.readUIntBE(at + 2, sizeBytes);
    const start = at + 2 + sizeBytes;
    found.push({ tag, bytes: bytes.subarray(at, start + size), content: bytes.subarray(start, start + size) });
    at = start + size;
  }
  return found;
}

/** Key and DNS names of a certificate request (RFC 2986). Throws when its signature is wrong. */
function readRequest(csr: Buffer) {
  const [info, , signature] = elements(elements(csr)[0]?.content ?? Buffer.alloc(0));
  if (info === undefined || signature === undefined) throw new Refusal(400, 'badCSR');
  const spki = elements(info.content)[2]?.bytes ?? Buffer.alloc(0);
  const key = createPublicKey({ key: spki, format: 'der', type: 'spki' });
  if (!verify('sha256', info.bytes, key, signature.content.subarray(1))) throw new Refusal(400, 'badCSR');
  return { key, names: dnsNames(info.content) };
}

/** Every dNSName below; octet strings are looked into. */
function dnsNames(bytes: Buffer): readonly string[] {
  return elements(bytes).flatMap(({ tag, content }) => {
    if (tag === 0x82) return [content.toString()];
    return [0x30, 0x31, 0xa0, 0x04].includes(tag) ? dnsNames(content) : [];
  });
}
