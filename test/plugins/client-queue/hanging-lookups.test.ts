import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { CachingResolver } from '../../../core/dns/caching-resolver.js';
import { MailRoutes } from '../../../core/dns/mail-routes.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { FixedResolver, type FixedName } from '../../core/dns/fixed-resolver.js';
import { outboundFixture } from './outbound-fixture.js';

const alive: FixedName = { a: ['127.0.0.1'] };

/** The name servers of what is called `dead` never answer. */
class HangingResolver extends FixedResolver {
  override resolveMx: FixedResolver['resolveMx'] = (name, options) => {
    this.questions.push(`MX ${name}`);
    return name.startsWith('dead') ? new Promise(() => undefined) : super.resolveMx(name, options);
  };
}

async function fixture(t: TestContext, names: Record<string, FixedName>) {
  const sink = await SmtpSink.start(t, {});
  const resolver = new HangingResolver(names);
  const finder = new MailRoutes({ resolver: new CachingResolver(resolver), ownNames: [], ownAddresses: () => [] });
  return { ...(await outboundFixture(t, { finder, options: { port: sink.port } })), resolver };
}

const deadOnes = (count: number): readonly string[] => Array.from({ length: count }, (_, n) => `x@dead${n}.example`);

test(
  'mail for many domains whose name servers do not answer keeps no other mail waiting',
  { timeout: 10_000 },
  async (t) => {
    const { enqueue, outbound, tried, queue } = await fixture(t, { 'one.example': alive, 'two.example': alive });
    const stuck = await enqueue({ to: deadOnes(2000) });
    const behind = await enqueue({ to: ['a@one.example'] });
    await outbound.start();
    assert.equal((await tried(behind)).state, 'delivered', 'who came behind them');
    const late = await enqueue({ to: ['b@two.example'] });
    assert.equal((await tried(late)).state, 'delivered', 'who came while all of them hang');
    assert.equal((await queue.find(stuck))?.state, 'queued');
  },
);
