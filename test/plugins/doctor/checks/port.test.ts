import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { lookup } from 'node:dns/promises';
import { createServer, type AddressInfo } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { listeningSockets, ownerOfSocket } from '../../../../plugins/doctor/port-checks.js';
import { outboundFindings } from '../../../../plugins/doctor/outbound-trial.js';
import { systemClock } from '../../../../core/clock.js';
import { lockFolder } from '../../../../core/disk/lock.js';
import { SystemResolver } from '../../../../core/dns/system-resolver.js';
import { DnsServer } from '../../../support/dns-server.js';
import { freePort } from '../../../support/free-port.js';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { Examined } from '../examined.js';

const onLinux = { skip: process.platform !== 'linux' && 'only Linux tells who listens' };

describe('what the doctor finds at the ports', () => {
  test('ports that are free, taken by a process that is named, or of another machine', onLinux, async (t) => {
    const server = createServer().listen(0, '127.0.0.1');
    t.after(() => server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const open = await freePort();
    const listeners = `[{ port: ${port} }, { name: 'free', port: ${open} }, { name: 'away', host: '192.0.2.1', port: 0 }, { name: 'gone', host: '192.0.2.1', port: ${open} }]`;
    const found = (await Examined.of(t, `{ http: { port: 0 }, smtp: { listeners: ${listeners} } }`)).of('ports');
    assert.match(found[0] ?? '', /^skipped: The pages: it takes any port/);
    assert.match(
      found[1] ?? '',
      new RegExp(
        `^problem: The SMTP listener mx cannot listen on 127\\.0\\.0\\.1:${port}: \\S.* \\(process ${process.pid}\\) does\\.`,
      ),
    );
    assert.match(found[2] ?? '', /^ok: The SMTP listener free: .* is free/);
    assert.match(found[3] ?? '', /^skipped: /);
    assert.match(found[4] ?? '', /^problem: .*192\.0\.2\.1:\d+: this machine has no such address/);
  });

  test(
    'beside a server: a name that leads to where it listens, and another address of the same port',
    onLinux,
    async (t) => {
      const name = await lookup(hostname()).then(
        () => hostname(),
        () => 'localhost',
      );
      const server = createServer().listen(0, name);
      t.after(() => server.close());
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo;
      const folder = await temporaryFolder(t);
      await mkdir(join(folder, 'data'), { mode: 0o700 });
      const lock = await lockFolder(join(folder, 'data'), { http: null });
      t.after(() => lock.release());
      const early = `{ http: { port: ${await freePort()} }, smtp: { listeners: [{ port: ${await freePort()} }] } }`;
      assert.deepEqual((await Examined.of(t, early, { folder })).of('ports'), [
        'skipped: The pages: the server is still starting.',
        'skipped: The SMTP listener mx: the server is still starting.',
      ]);
      // Nobody answers there: it has become silent.
      await lock.update({ http: 'http://127.0.0.1:9', token: 'x' });
      const listeners = `[{ host: '${name}', port: ${port} }, { name: 'else', host: '127.0.0.7', port: ${port} }]`;
      const config = `{ http: { port: 0 }, smtp: { listeners: ${listeners} } }`;
      const found = (await Examined.of(t, config, { folder })).of('ports');
      assert.match(
        found[1] ?? '',
        new RegExp(`^ok: The SMTP listener mx listens on .*:${port} \\(process ${process.pid}\\)`),
      );
      assert.match(found[2] ?? '', /^problem: The SMTP listener else should listen on 127\.0\.0\.7:\d+, but does not/);
    },
  );

  test('proc(5) is read for IPv4 and IPv6, and its other lines are left out', async (t) => {
    const proc = await temporaryFolder(t);
    await mkdir(join(proc, 'net'));
    await mkdir(join(proc, '4711', 'fd'), { recursive: true });
    await symlink('socket:[100]', join(proc, '4711', 'fd', '7'));
    await writeFile(join(proc, '4711', 'comm'), 'master\n');
    const line = (local: string, state: string, inode: string) =>
      `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 ${inode} 1 0000000000000000 100`;
    const head = '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode';
    await writeFile(
      join(proc, 'net', 'tcp'),
      [head, line('0100007F:09DD', '0A', '100'), line('0100007F:0050', '01', '101'), 'nonsense', ''].join('\n'),
    );
    const loopback6 = '00000000000000000000000001000000';
    await writeFile(
      join(proc, 'net', 'tcp6'),
      [head, line(`${loopback6}:0019`, '0A', '102'), line(`${'0'.repeat(32)}:0019`, '0A', '103')].join('\n'),
    );
    assert.deepEqual(await listeningSockets(proc), [
      { address: '127.0.0.1', port: 2525, inode: '100' },
      { address: '0:0:0:0:0:0:0:1', port: 25, inode: '102' },
      { address: '::', port: 25, inode: '103' },
    ]);
    assert.deepEqual(await ownerOfSocket('100', proc), { pid: 4711, name: 'master' });
    assert.equal(await ownerOfSocket('102', proc), undefined);
    assert.equal(await listeningSockets(join(proc, 'nowhere')), undefined);
  });
});

describe('the way out', () => {
  test('a server that takes the call, one that refuses, one that is not there, and a domain without any', async (t) => {
    const [willing, unwilling] = [
      await SmtpSink.start(t),
      await SmtpSink.start(t, { steps: { greeting: '554 Go away' } }),
    ];
    const dns = await DnsServer.start(t, {
      'acme.org': { MX: [[10, 'mx.acme.org']] },
      'mx.acme.org': { A: ['127.0.0.1'] },
      'null.org': { MX: [[0, '.']] },
    });
    const resolver = new SystemResolver({ servers: [dns.address] });
    const look = async (domain: string, port: number) => {
      const findings = await outboundFindings({
        domain,
        hostname: 'mail.example.org',
        resolver,
        clock: systemClock,
        port,
      });
      return findings.map(({ state, is }) => `${state}: ${is}`).join('\n');
    };
    assert.match(
      await look('acme.org', willing.port),
      /^ok: mx\.acme\.org \(127\.0\.0\.1, port \d+\) takes the call, in clear/,
    );
    assert.match(await look('acme.org', unwilling.port), /^advice: .* answers, but not with a yes: 554 Go away/);
    assert.match(await look('acme.org', await freePort()), /^problem: .* cannot be reached/);
    assert.match(await look('null.org', 25), /^problem: There is no way to null\.org/);
    await assert.rejects(look('no domain', 25), /domain/i);
  });
});
