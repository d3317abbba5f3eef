import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { gzipSync } from 'node:zlib';
import { dkimSign } from 'mailauth/lib/dkim/sign.js';
import { dkimText } from '../../../core/dns/mail-zone.js';
import { parseAddress } from '../../../core/mime/address.js';
import { reportMail, tlsReport } from '../../../plugins/client-queue/tls-reports/report.js';
import { store } from '../../../plugins/store/index.js';
import { tlsReports } from '../../../plugins/tls-reports/index.js';
import { drive } from '../../kit/index.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const { privateKey } = generateKeyPairSync('ed25519');
const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();

interface Row {
  readonly submitter: string;
  readonly domain: string;
  readonly from: string;
  readonly succeeded: number;
  readonly failed: number;
  readonly failures: readonly { readonly result: string }[];
}

const site = async (t: TestContext, options: object = {}, data?: string) => {
  const dns = { 's1._domainkey.sender.example TXT': [dkimText(pem)] };
  const driven = await drive(tlsReports, {
    test: t,
    beside: [store],
    options,
    dns,
    ...(data !== undefined && { data }),
  });
  const rows = async (query = '') => {
    const { text } = await driven.call('GET', `/tls-reports${query}`);
    const { items } = JSON.parse(text) as { readonly items: readonly Row[] };
    return items;
  };
  const result = (name: string) => driven.metric('tls_reports_total', { result: name });
  return { driven, rows, result };
};

/** A report as this server sends them. */
function mailOf({ day = '2026-03-01', domain = 'example.org', from = 'tls@mail.sender.example' } = {}): Buffer {
  const failures = [
    { result: 'certificate-expired', host: 'mx.example.org', address: '', reason: '', count: 2 },
  ] as const;
  const report = tlsReport({
    day,
    domain,
    contact: parseAddress(from),
    hostname: 'mail.sender.example',
    results: {
      sent: [],
      policies: [{ type: 'sts', strings: [], mx: [], succeeded: 7, failures: [...failures] }],
    },
  });
  return reportMail(report, parseAddress(from), parseAddress('postmaster@example.org'), new Date(0));
}

async function signed(mail: Buffer): Promise<Buffer> {
  const { signatures } = await dkimSign(mail, {
    signingDomain: 'sender.example',
    selector: 's1',
    privateKey: pem,
    signatureData: [{ signingDomain: 'sender.example', selector: 's1', privateKey: pem }],
  });
  return Buffer.concat([Buffer.from(signatures), mail]);
}

describe('reports of other servers', () => {
  test('are read from signed mail to postmaster, shown once, and delivered as all mail', async (t) => {
    const { driven, rows, result } = await site(t);
    assert.match((await driven.page('/tls-reports')).text, /No reports/);
    const eml = await signed(mailOf());
    for (let n = 0; n < 2; n += 1) {
      assert.equal((await driven.data({ to: ['postmaster@example.org'], eml })).code, 250);
    }
    assert.deepEqual(
      (await rows()).map(({ submitter, domain, succeeded, failed, failures }) => [
        submitter,
        domain,
        succeeded,
        failed,
        failures.map((one) => one.result),
      ]),
      [['sender.example', 'example.org', 7, 2, ['certificate-expired']]],
    );
    assert.deepEqual([await result('read'), await result('repeated')], [1, 1]);
    const { text, html } = await driven.page('/tls-reports');
    assert.match(text, /2026-03-01.*example\.org.*sender\.example.*certificate-expired/s);
    assert.match(html, /aria-label="Reports"/);
  });

  test('are kept over a restart, newest first, and filtered by failures', async (t) => {
    const data = join(await temporaryFolder(t), 'data');
    const first = await site(t, {}, data);
    for (const day of ['2026-03-01', '2026-03-02']) {
      await first.driven.data({ to: ['postmaster@example.org'], eml: await signed(mailOf({ day })) });
    }
    await first.driven.close();
    const { rows } = await site(t, {}, data);
    const days = (await rows('?failed=true')).map(({ from }) => from.slice(0, 10));
    assert.deepEqual(days, ['2026-03-02', '2026-03-01']);
  });

  test('are ignored without a valid signature of their author', async (t) => {
    const { driven, rows, result } = await site(t);
    const good = await signed(mailOf());
    const changed = Buffer.from(good.toString('latin1').replace('RFC 8460', 'RFC 8461'), 'latin1');
    const foreign = await signed(mailOf({ from: 'tls@provider.example' }));
    for (const eml of [mailOf(), changed, foreign]) {
      assert.equal((await driven.data({ to: ['postmaster@example.org'], eml })).code, 250);
    }
    assert.deepEqual([await rows(), await result('unsigned')], [[], 3]);
    assert.ok(driven.log.some(({ msg }) => msg === 'a TLS report is ignored'));
  });

  test('are ignored when they are about others, or come to another address', async (t) => {
    const { driven, rows, result } = await site(t, { addresses: ['TLS@example.org'] });
    await driven.data({ to: ['postmaster@example.org'], eml: await signed(mailOf()) });
    await driven.data({ to: ['tls@example.org'], eml: await signed(mailOf({ domain: 'example.com' })) });
    assert.deepEqual([await rows(), await result('foreign')], [[], 1]);
    await driven.data({ to: ['anna@example.org', 'tls@example.org'], eml: await signed(mailOf()) });
    assert.equal((await rows()).length, 1);
    await driven.reconfigure({});
    await driven.data({ to: ['postmaster@example.org'], eml: await signed(mailOf({ day: '2026-03-02' })) });
    assert.equal((await rows()).length, 2);
  });

  test('that are damaged or bombs are mail like any other', async (t) => {
    const { driven, rows, result } = await site(t);
    const bomb =
      gzipSync(Buffer.alloc(50_000_000, ' '))
        .toString('base64')
        .match(/.{1,76}/g) ?? [];
    for (const body of [bomb, ['bm8gZ3ppcA=='], ['']]) {
      const head = [
        'From: tls@sender.example',
        'Content-Type: application/tlsrpt+gzip',
        'Content-Transfer-Encoding: base64',
      ];
      const eml = await signed(Buffer.from([...head, '', ...body, ''].join('\r\n')));
      assert.equal((await driven.data({ to: ['postmaster@example.org'], eml })).code, 250);
    }
    const none =
      'From: tls@sender.example\r\nContent-Type: multipart/report; report-type=tlsrpt; boundary=b\r\n\r\n--b\r\n\r\nnothing\r\n--b--\r\n';
    const eml = await signed(Buffer.from(none));
    assert.equal((await driven.data({ to: ['postmaster@example.org'], eml })).code, 250);
    assert.deepEqual([await rows(), await result('unreadable')], [[], 4]);
  });

  const words = 'ordinary words in a row '.repeat(3).trimEnd();
  const field = (name: string, bytes: number): string => {
    const lines = Math.floor((bytes - name.length - 2) / (words.length + 3));
    return `${name}: ${Array.from({ length: lines }, () => words).join('\r\n ')}\r\n`;
  };
  for (const [title, extra, expected] of [
    ['a header within the bounds', field('Comments', 8000).repeat(7), 'read'],
    ['a long field', field('Comments', 10_000), 'skipped'],
    ['a long header', field('Comments', 7000).repeat(10), 'skipped'],
    ['many fields', 'Comments: x\r\n'.repeat(600), 'skipped'],
    ['a long line that is no field', field('no field', 10_000).replace(':', ''), 'skipped'],
    ['two authors', 'From: eve@sender.example\r\n', 'skipped'],
    ['too many signatures', 'DKIM-Signature: v=1; d=sender.example; s=s1\r\n'.repeat(5), 'skipped'],
  ] as const) {
    test(`with ${title} are ${expected}`, async (t) => {
      const { driven, result } = await site(t);
      const eml = Buffer.concat([Buffer.from(extra), await signed(mailOf())]);
      assert.equal((await driven.data({ to: ['postmaster@example.org'], eml })).code, 250);
      assert.equal(await result(expected), 1);
    });
  }

  test('in mail of more than 1 MB are skipped', async (t) => {
    const { driven, rows, result } = await site(t);
    const text = mailOf().toString('latin1');
    const long = text.replace(/(\r\n--[^\r\n]+--\r\n)$/, `$1${`${words}\r\n`.repeat(15_000)}`);
    const eml = await signed(Buffer.from(long, 'latin1'));
    assert.ok(eml.length > 1024 * 1024);
    assert.equal((await driven.data({ to: ['postmaster@example.org'], eml })).code, 250);
    assert.deepEqual([await rows(), await result('skipped')], [[], 1]);
  });

  test('that come in a crowd are all taken, and each is read or counted', async (t) => {
    const { driven, result } = await site(t);
    const crowd = await Promise.all(
      Array.from({ length: 100 }, async (_, n) => {
        const day = new Date(Date.UTC(2026, 0, 1 + (n % 40))).toISOString().slice(0, 10);
        const eml = Buffer.concat([Buffer.from(field('Comments', 8000).repeat(7)), await signed(mailOf({ day }))]);
        return driven.data({ ip: `192.0.2.${n % 7}`, to: ['postmaster@example.org'], eml });
      }),
    );
    assert.ok(crowd.every(({ code }) => code === 250));
    const [read, repeated, skipped] = [await result('read'), await result('repeated'), await result('skipped')];
    assert.ok(read > 0, `${read} read, ${skipped} skipped`);
    assert.equal(read + repeated + skipped, 100);
  });

  test('of one submitter do not displace those of others', async (t) => {
    const { driven, rows } = await site(t);
    for (let n = 0; n < 52; n += 1) {
      const day = new Date(Date.UTC(2026, 0, 1 + n)).toISOString().slice(0, 10);
      await driven.data({ to: ['postmaster@example.org'], eml: await signed(mailOf({ day })) });
    }
    assert.equal((await rows()).length, 50);
  });
});
