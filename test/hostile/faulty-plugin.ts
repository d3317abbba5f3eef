/**
 * A site plugin whose hooks and delivery target fail in the way that the name of a sender, a recipient, a hello or a user
 * asks for. JavaScript, as sites write it; the errors are what a disk gives, with a path in their text.
 */
export const faultyPlugin = `
import { definePlugin, next, route } from 'postern/plugin';

const broken = (code) => Object.assign(new Error(code + ": write '/srv/secret/place'"), { code, path: '/srv/secret/place' });
const misbehave = (how) => {
  if (how.startsWith('throws-')) throw broken(how.slice(7).toUpperCase());
  if (how.startsWith('rejects-')) return Promise.reject(broken(how.slice(8).toUpperCase()));
  if (how === 'never') return new Promise(() => undefined);
  if (how === 'odd') return { verdict: 'perhaps' };
  if (how === 'nothing') return undefined;
  return next();
};
const at = (stage, name) => {
  const [where, how] = (name ?? '').split('.');
  return where === stage ? misbehave(how) : next();
};
const quick = { order: 'first', timeLimitMs: 100 };

export const faulty = definePlugin({
  name: 'faulty',
  setup({ smtp }) {
    smtp.on('connect', quick, ({ session }) => at('connect', session.listener.name));
    smtp.on('ehlo', quick, ({ name }) => at('ehlo', name));
    smtp.on('auth', quick, ({ username }) => at('auth', username.split('@')[0]));
    smtp.on('mailFrom', quick, ({ transaction }) => at('mailfrom', transaction.reversePath?.local));
    smtp.on('rcptTo', quick, ({ address }) => at('rcptto', address.local));
    smtp.on('message', quick, ({ transaction }) => at('message', transaction.reversePath?.local));
    smtp.on('deliver', quick, ({ transaction }) => at('deliver', transaction.reversePath?.local));
    smtp.on('rcptTo', { order: 'route' }, ({ address }) =>
      address.domain === 'target.example' ? route({ target: 'broken', destination: address.address }) : next());
    const step = async (where, transaction) => {
      const [step, how] = (transaction.reversePath?.local ?? '').split('.');
      if (step === where) await misbehave(how);
    };
    smtp.deliverTo('broken', {
      async start(transaction, recipients) {
        await step('start', transaction);
        return {
          body: () => step('body', transaction),
          commit: async () => {
            await step('commit', transaction);
            return recipients.map((recipient) => ({ recipient, outcome: 'delivered' }));
          },
          abort: () => Promise.resolve(),
        };
      },
    });
  },
});
`;
