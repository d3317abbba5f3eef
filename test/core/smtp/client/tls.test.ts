import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { openSession } from '../../../../core/smtp/client/opening.js';
import type { RemoteServer } from '../../../../core/smtp/client/remote-server.js';
import { selfSigned } from '../../../support/certificate.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import { described, destinationOf, failureOf, message, open, outcomes } from './fixture.js';

const tls = selfSigned('mx.example.com');
const auth = { username: 'anna', password: 'pa ss+wörd' };

async function opened(t: Ending, script: SinkScript, more: Partial<RemoteServer>, tlsMs = 20_000) {
  const sink = await SmtpSink.start(t, script);
  return {
    sink,
    opening: open(t, sink, { host: 'mx.example.com', ...more }, { deadlines: { tlsMs } }),
  };
}

const refused = async (t: Ending, script: SinkScript, more: Partial<RemoteServer>, tlsMs?: number): Promise<string> =>
  described(await failureOf((await opened(t, script, more, tlsMs)).opening));

test('STARTTLS is used where it is offered, and what was offered in clear is forgotten', async (t) => {
  const { sink, opening } = await opened(t, { tls }, { tls: { mode: 'opportunistic' } });
  const session = await opening;
  assert.match(session.tls?.protocol ?? '', /^TLSv1\.[23]$/);
  assert.equal(session.tls?.verified, false);
  assert.equal(session.capabilities.startTls, false);
  assert.deepEqual(outcomes(await session.send(message())), ['delivered']);
  assert.equal(sink.messages[0]?.encrypted, true);
  assert.deepEqual(sink.commands.slice(0, 3), ['EHLO client.example', 'STARTTLS', 'EHLO client.example']);
});

test('opportunistic TLS stays in clear where there is none or it is refused', async (t) => {
  for (const script of [
    {},
    { tls, steps: { starttls: '454 4.7.0 Not now' } },
    { tls, steps: { starttls: '501 No' } },
  ]) {
    const { sink, opening } = await opened(t, script, { tls: { mode: 'opportunistic' } });
    assert.deepEqual(outcomes(await (await opening).send(message())), ['delivered']);
    assert.equal(sink.messages[0]?.encrypted, false);
    assert.equal(sink.connections, 1);
  }
});

test('opportunistic TLS whose handshake fails is followed by another call in clear', async (t) => {
  const capabilities = ['STARTTLS', '8BITMIME'];
  const { sink, opening } = await opened(t, { capabilities }, { tls: { mode: 'opportunistic' } });
  assert.deepEqual(outcomes(await (await opening).send(message())), ['delivered']);
  assert.equal(sink.connections, 2);
});

test('opportunistic TLS whose handshake hangs is followed by another call in clear', async (t) => {
  for (const reply of ['220 2.0.0 Go\r\n', '']) {
    let connections = 0;
    const server = createServer((socket) => {
      connections += 1;
      socket.on('error', () => undefined).write('220 mx.example.com ready\r\n');
      socket.on('data', (bytes) => {
        const said = bytes.toString('latin1');
        if (said.startsWith('EHLO')) socket.write('250-mx.example.com\r\n250 STARTTLS\r\n');
        else if (said.startsWith('STARTTLS')) socket.write(reply);
      });
    }).listen(0, '127.0.0.1');
    atEnd(t, () => void server.close());
    await once(server, 'listening');
    const options = { deadlines: { tlsMs: 200 } };
    const at = (mode: 'opportunistic' | 'require') =>
      openSession(destinationOf(server.address() as AddressInfo, { tls: { mode } }), options);
    const session = await at('opportunistic');
    assert.deepEqual([session.tls, session.tlsFailure?.kind, connections], [undefined, 'timeout', 2]);
    session.close();
    assert.equal(described(await failureOf(at('require'))), 'timeout starttls 451 4.4.2 temporary');
    assert.equal(connections, 3);
  }
});

test('bytes after the 220 of STARTTLS are an attack, and nothing is sent at all', async (t) => {
  const steps = { starttls: { raw: '220 2.0.0 Go\r\n250 injected\r\n' } } as const;
  for (const mode of ['opportunistic', 'require'] as const) {
    const { sink, opening } = await opened(t, { tls, steps }, { tls: { mode } });
    assert.equal(described(await failureOf(opening)), 'protocol starttls 451 4.5.0 temporary');
    assert.equal(sink.connections, 1);
  }
});

test('required TLS never continues in clear', async (t) => {
  const mode = 'require';
  assert.equal(await refused(t, {}, { tls: { mode } }), 'tls starttls 451 4.7.4 temporary');
  const refusing = { tls, steps: { starttls: '454 4.7.0 Not now' } };
  assert.equal(await refused(t, refusing, { tls: { mode } }), 'reply starttls 454 4.7.0 temporary');
  assert.equal(await refused(t, { capabilities: ['STARTTLS'] }, { tls: { mode } }), 'tls starttls 451 4.7.5 temporary');
  const stalling = { capabilities: ['STARTTLS'], steps: { starttls: { stall: true } } } as const;
  assert.equal(await refused(t, stalling, { tls: { mode } }, 300), 'timeout starttls 451 4.4.2 temporary');
});

test('required TLS verifies the certificate, unless configured otherwise', async (t) => {
  const mode = 'require';
  assert.equal(await refused(t, { tls }, { tls: { mode } }), 'tls starttls 451 4.7.5 temporary');
  const unverified = await (await opened(t, { tls }, { tls: { mode, verify: false } })).opening;
  assert.equal(unverified.tls?.verified, false);
  const trusted = await (await opened(t, { tls }, { tls: { mode, ca: tls.cert } })).opening;
  assert.equal(trusted.tls?.verified, true);
  const other = { tls: { mode, ca: tls.cert }, host: 'other.example.com' } as const;
  assert.equal(await refused(t, { tls }, other), 'tls starttls 451 4.7.5 temporary');
  const renamed = await (
    await opened(t, { tls }, { ...other, tls: { ...other.tls, servername: 'mx.example.com' } })
  ).opening;
  assert.equal(renamed.tls?.verified, true);
});

test('implicit TLS speaks nothing in clear', async (t) => {
  const script = { tls: { ...tls, implicit: true } };
  const { sink, opening } = await opened(t, script, { tls: { mode: 'implicit', ca: tls.cert } });
  const session = await opening;
  assert.equal(session.tls?.verified, true);
  assert.deepEqual(outcomes(await session.send(message())), ['delivered']);
  assert.equal(sink.messages[0]?.encrypted, true);
  assert.equal(await refused(t, {}, { tls: { mode: 'implicit' } }), 'tls starttls 451 4.7.5 temporary');
});

test('a certificate that cannot be read here is a fault of ours', async (t) => {
  const ca = '-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n';
  const { sink, opening } = await opened(t, { tls }, { tls: { mode: 'require', ca } });
  assert.match(described(await failureOf(opening)), /^(?:local|tls) starttls 451 4\.(?:3\.0|7\.5) temporary$/);
  await sink.until(({ open: left }) => left === 0);
});

test('credentials go through TLS, by PLAIN or by LOGIN', async (t) => {
  for (const capabilities of [['AUTH PLAIN LOGIN'], ['AUTH LOGIN'], ['AUTH CRAM-MD5 PLAIN']]) {
    const script = { tls, auth, capabilities };
    const { sink, opening } = await opened(t, script, { tls: { mode: 'require', ca: tls.cert }, auth });
    assert.deepEqual(outcomes(await (await opening).send(message())), ['delivered']);
    assert.equal(sink.messages[0]?.user, 'anna');
  }
});

test('credentials make TLS required, and its certificate looked at', async (t) => {
  const mode = 'opportunistic';
  const inClear = await opened(t, { auth }, { tls: { mode }, auth });
  assert.equal(described(await failureOf(inClear.opening)), 'tls starttls 451 4.7.4 temporary');
  assert.ok(!inClear.sink.commands.some((line) => line.startsWith('AUTH')));
  const unknown = await opened(t, { tls, auth }, { tls: { mode }, auth });
  assert.equal(described(await failureOf(unknown.opening)), 'tls starttls 451 4.7.5 temporary');
  assert.equal(unknown.sink.connections, 1);
  const never = await opened(t, { tls, auth }, { tls: { mode: 'never' }, auth });
  assert.equal(described(await failureOf(never.opening)), 'tls starttls 451 4.7.4 temporary');
});

test('credentials in clear go to this machine alone, where that is allowed', async (t) => {
  const { sink, opening } = await opened(
    t,
    { auth },
    { tls: { mode: 'never' }, auth: { ...auth, plaintext: 'loopback' } },
  );
  assert.deepEqual(outcomes(await (await opening).send(message())), ['delivered']);
  assert.equal(sink.messages[0]?.user, 'anna');
});

test('wrong credentials are a temporary failure: they are ours to mend', async (t) => {
  const secure = { tls: { mode: 'require', ca: tls.cert }, auth: { ...auth, password: 'wrong' } } as const;
  assert.equal(await refused(t, { tls, auth }, secure), 'reply auth 535 5.7.8 temporary');
  assert.equal(await refused(t, { tls, auth, capabilities: ['AUTH LOGIN'] }, secure), 'reply auth 535 5.7.8 temporary');
  assert.equal(await refused(t, { tls, capabilities: ['AUTH GSSAPI'] }, secure), 'capability auth 454 4.7.0 temporary');
  assert.equal(await refused(t, { tls, capabilities: [] }, secure), 'capability auth 454 4.7.0 temporary');
});
