import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, Server, type AddressInfo, type Socket } from 'node:net';
import { describe, it } from 'node:test';
import { TLSSocket, type SecureContext } from 'node:tls';
import { SMTPServer } from 'smtp-server';
import sasl from 'smtp-server/lib/sasl.js';
import * as library from 'smtp-server/lib/smtp-connection.js';
import { selfSigned } from '../../../support/certificate.js';
import { SmtpClient } from '../../../support/smtp-client.js';

/** A server that hands its connections out, as ours does. */
class Listening extends SMTPServer {
  readonly connected: Promise<Socket>;
  #connected: (socket: Socket) => void = () => undefined;

  constructor(options: ConstructorParameters<typeof SMTPServer>[0]) {
    super({ logger: false, hideSTARTTLS: true, allowHalfOpen: true, ...options });
    this.connected = new Promise((resolve) => (this.#connected = resolve));
    this.on('error', () => undefined);
  }

  override connect(socket: Socket): void {
    this.#connected(socket);
  }

  async listening(): Promise<number> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return (this.server.address() as AddressInfo).port;
  }
}

describe('what is relied on of smtp-server', () => {
  it('connect(socket, options) is where its own connection would begin, and the only place', async () => {
    assert.equal(SMTPServer.prototype.connect.length, 2);
    const server = new Listening({});
    const port = await server.listening();
    const client = connect(port, '127.0.0.1');
    let received = '';
    client.on('data', (chunk: Buffer) => (received += chunk.toString()));
    const socket = await server.connected;
    assert.equal(server.connections.size, 0);
    assert.equal(socket.listenerCount('data'), 0);
    socket.end('ours\r\n');
    await once(client, 'end');
    assert.equal(received, 'ours\r\n');
    client.destroy();
    server.close();
  });

  it('server is the net.Server, made with our allowHalfOpen', async () => {
    const server = new Listening({});
    assert.ok(server.server instanceof Server);
    const port = await server.listening();
    const client = connect(port, '127.0.0.1');
    const socket = await server.connected;
    assert.equal(socket.allowHalfOpen, true);
    client.destroy();
    server.close();
  });

  it('close() stops the net.Server and destroys handshakes that go on', async () => {
    const server = new Listening({ secure: true, ...selfSigned() });
    const port = await server.listening();
    const client = connect(port, '127.0.0.1');
    client.on('error', () => undefined);
    await once(server.server, 'connection');
    await new Promise(setImmediate);
    assert.ok(server._pendingSockets instanceof Map);
    assert.equal(server._pendingSockets.size, 1);
    const [[, top]] = [...server._pendingSockets] as [[Socket, Socket]];
    assert.equal(top.destroyed, false);
    const closed = once(server.server, 'close');
    server.close();
    await closed;
    assert.equal(server.server.listening, false);
    assert.equal(top.destroyed, true);
    client.destroy();
  });

  it('with secure it does the handshake and hands out the TLS socket', async () => {
    const server = new Listening({ secure: true, ...selfSigned() });
    const port = await server.listening();
    const client = await SmtpClient.connect({ port, tls: true });
    const socket = await server.connected;
    assert.ok(socket instanceof TLSSocket);
    assert.equal(server._pendingSockets.size, 0);
    client.close();
    server.close();
  });

  it('a handshake that fails is an error event of the server, not of the process', async () => {
    const server = new Listening({ secure: true, ...selfSigned() });
    const port = await server.listening();
    const client = connect(port, '127.0.0.1');
    client.on('error', () => undefined);
    client.write('not a TLS hello\r\n');
    const [error] = (await once(server, 'error')) as [Error];
    assert.ok(error instanceof Error);
    client.destroy();
    server.close();
  });

  it('updateSecureContext puts new key and certificate into secureContext', () => {
    const server = new Listening({ ...selfSigned() });
    const before = server.secureContext.get('*');
    assert.ok(before !== undefined);
    server.updateSecureContext(selfSigned());
    assert.notEqual(server.secureContext.get('*'), before);
  });

  it('createTLSSocketOptions(server) makes a server end with the present context', () => {
    const { createTLSSocketOptions } = library as unknown as {
      createTLSSocketOptions: (server: SMTPServer) => { isServer: boolean; secureContext: SecureContext };
    };
    assert.equal(createTLSSocketOptions.length, 1);
    const server = new Listening({ ...selfSigned() });
    const options = createTLSSocketOptions(server);
    assert.equal(options.isServer, true);
    assert.equal(options.secureContext, server.secureContext.get('*'));
  });

  it('the SASL mechanisms answer by send, keep the next step in _nextHandler and ask _server.onAuth', () => {
    const sent: (readonly [number, string | undefined])[] = [];
    const asked: unknown[] = [];
    const host = {
      id: '',
      name: '',
      session: {} as Record<string, unknown>,
      _nextHandler: false as false | ((line: string, done: () => void) => void),
      send: (code: number, text?: string) => sent.push([code, text]),
      _transmissionType: () => 'ESMTPA',
      _server: {
        logger: { info: () => undefined },
        onAuth: (given: unknown, _session: unknown, done: (error: null, answer: object) => void) => {
          asked.push(given);
          done(null, { user: 'anna' });
        },
      },
    };
    let done = 0;
    const run = (mechanism: 'SASL_PLAIN' | 'SASL_LOGIN', args: readonly string[]) =>
      (sasl[mechanism] as unknown as (this: typeof host, args: readonly string[], done: () => void) => void).call(
        host,
        args,
        () => {
          done += 1;
        },
      );
    const next = (line: string): void => {
      const step = host._nextHandler;
      host._nextHandler = false;
      assert.equal(typeof step, 'function');
      if (step !== false) step(line, () => (done += 1));
    };
    assert.deepEqual([sasl.SASL_PLAIN.length, sasl.SASL_LOGIN.length], [2, 2]);

    run('SASL_PLAIN', []);
    next(Buffer.from('zid\0anna\0secret').toString('base64'));
    run('SASL_LOGIN', [Buffer.from('anna').toString('base64')]);
    next(Buffer.from('secret').toString('base64'));
    assert.deepEqual(sent, [
      [334, undefined],
      [235, 'Authentication successful'],
      [334, 'UGFzc3dvcmQ6'],
      [235, 'Authentication successful'],
    ]);
    assert.equal(done, 4);
    assert.deepEqual(asked, [
      { method: 'PLAIN', username: 'anna', authcid: 'anna', authzid: 'zid', password: 'secret' },
      { method: 'LOGIN', username: 'anna', password: 'secret' },
    ]);
  });
});
