import { accept, change, definePlugin, next, parseAddress, reject, route, z } from '../../core/plugin.js';
import type { Hook, Watcher } from '../../core/plugin.js';

const greet: Hook<'connect'> = ({ session }) => (session.remote.address === '192.0.2.1' ? next() : accept());
const note: Watcher<'delivered'> = ({ recipient, target }) => void `${recipient.address.address} ${target}`;

definePlugin({
  name: 'well-formed',
  options: z.strictObject({ domain: z.string() }),
  setup({ smtp }, { options }) {
    smtp.on('connect', greet);
    smtp.on('rcptTo', { order: 'route', before: ['users'], timeLimitMs: 500 }, async ({ address, transaction }) => {
      if (transaction.reversePath === null) return next();
      return address.domain === options.domain ? route({ target: 'relay', destination: address.domain }) : next();
    });
    smtp.on('message', ({ message }) => {
      void message;
      return change(
        { change: 'add-header', name: 'X-Seen', value: 'yes' },
        { change: 'add-recipient', address: parseAddress('archive@example.org') },
      );
    });
    smtp.watch('delivered', note);
  },
});

definePlugin({
  name: 'wrong-hooks',
  setup({ smtp }) {
    // @ts-expect-error there is no such stage
    smtp.on('rcpt', () => next());
    // @ts-expect-error a hook answers with a verdict
    smtp.on('mailFrom', () => true);
    // @ts-expect-error neither is nothing one
    smtp.on('mailFrom', () => undefined);
    // @ts-expect-error nor what only looks like one
    smtp.on('mailFrom', () => ({ kind: 'next' }));
    // @ts-expect-error there is no such phase
    smtp.on('mailFrom', { order: 'early' }, () => next());
    // @ts-expect-error an address is known from RCPT on
    smtp.on('mailFrom', ({ address }) => next(address));
    // @ts-expect-error the sender may be the null reverse-path
    smtp.on('mailFrom', ({ transaction }) => next(transaction.reversePath.address));
    // @ts-expect-error what a hook is given is not for it to change
    smtp.on('rcptTo', ({ transaction }) => ((transaction.reversePath = null), next()));
    // @ts-expect-error a hook for one stage does not fit another
    smtp.on('deliver', greet satisfies Hook<'rcptTo'>);
  },
});

definePlugin({
  name: 'wrong-verdicts',
  setup({ smtp }) {
    // @ts-expect-error a refusal needs a code, a status and a sentence
    smtp.on('mailFrom', () => reject('Go away'));
    // @ts-expect-error codes are numbers
    smtp.on('mailFrom', () => reject('550', '5.7.1', 'Go away'));
    // @ts-expect-error a hop names its target
    smtp.on('rcptTo', () => route({ destination: 'example.org' }));
    // @ts-expect-error a recipient is an address, not a text
    smtp.on('message', () => change({ change: 'add-recipient', address: 'anna@example.org' }));
    // @ts-expect-error there is no such change
    smtp.on('message', () => change({ change: 'replace-body', body: '' }));
  },
});

definePlugin({
  name: 'wrong-watchers',
  setup({ smtp }) {
    // @ts-expect-error there is no such event
    smtp.watch('received', () => undefined);
    // @ts-expect-error an event has what it has
    smtp.watch('closed', ({ recipient }) => void recipient);
    // @ts-expect-error a watcher for one event does not fit another
    smtp.watch('closed', note);
  },
});
