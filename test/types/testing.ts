import { definePlugin } from '../../core/plugin.js';
import { drive, FakeClock, FakeDns, message, type ClientAnswer } from '../kit/index.js';

const plugin = definePlugin({ name: 'typed', setup() {} });

export async function typed(): Promise<void> {
  const site = await drive(plugin, {
    options: { any: 'shape' },
    clock: new FakeClock('2026-01-01'),
    dns: { 'example.org A': ['192.0.2.1'], 'slow.example A': FakeDns.slow('timeout', { seconds: 1 }) },
  });
  const answer: ClientAnswer = await site.rcpt({ from: 'a@example.com', to: 'b@example.org', ip: '192.0.2.1' });
  const replies: readonly ClientAnswer[] = await site.session('NOOP');
  const one: ClientAnswer = await site.session({ ip: '192.0.2.1' }).send('NOOP');
  const eml: string = message({ headers: { Received: ['one', 'two'] } });
  const { status, why } = site.health('typed');
  await site.emit('delivered', { to: 'b@example.org', target: 'relay' });
  void [answer, replies, one, eml, status, why];

  // @ts-expect-error RCPT has one recipient
  await site.rcpt({ to: ['b@example.org', 'c@example.org'] });
  // @ts-expect-error there is no such role
  await site.call('GET', '/', { role: 'root' });
  // @ts-expect-error there is no such event
  await site.emit('arrived');
  // @ts-expect-error an event has the members that it has
  await site.emit('closed', { target: 'relay' });
  // @ts-expect-error verdicts are a closed list
  if (answer.verdict === 'maybe') return;
  // @ts-expect-error a clock is turned by a span
  await site.clock.advance(60);
  // @ts-expect-error not everything can go wrong
  site.dns.set('example.org A', 'broken');
  // @ts-expect-error what is driven is a plugin
  await drive({ name: 'typed' });
  // @ts-expect-error there is no such listener
  void site.session({ mode: 'pop3' });
}
