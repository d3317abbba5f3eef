import { defineEndpoint, definePlugin, next, reject, route, z } from 'postern/plugin';
import { drive } from 'postern/testing';

/** @import { DeliveryTarget, Hook, Transaction } from 'postern/plugin' */

/** @type {Hook<'mailFrom'>} */
const judge = ({ transaction }) => (senderOf(transaction) === '' ? next() : reject(550, '5.7.1', 'No'));

/** @param {Transaction} transaction */
function senderOf(transaction) {
  return transaction.reversePath?.address ?? '';
}

/** @type {DeliveryTarget} */
const nowhere = {
  start: async () => ({ body: async () => {}, commit: async () => [], abort: async () => {} }),
};

export const things = definePlugin({
  name: 'things',
  options: z.strictObject({ size: z.number().default(3) }),
  setup({ http, smtp }, { options }) {
    /** @type {Map<string, number>} */
    const sizes = new Map();
    smtp.on('mailFrom', judge);
    smtp.on('rcptTo', ({ address }) => {
      sizes.set(address.address, options.size);
      return route({ target: 'nowhere', destination: address.domain });
    });
    smtp.deliverTo('nowhere', nowhere);
    http.mount([
      defineEndpoint({
        method: 'GET',
        path: '/things/{name}',
        summary: 'Things',
        group: 'Site',
        access: 'read',
        params: z.object({ name: z.string() }),
        handle: ({ params }) => ({ size: sizes.get(params.name) ?? null }),
      }),
    ]);
    // @ts-expect-error options have the shape of their schema
    sizes.set('x', options.colour);
    // @ts-expect-error there is no such stage
    smtp.on('rcpt', () => next());
    // @ts-expect-error a hook answers with a verdict
    smtp.on('ehlo', () => 'yes');
    // @ts-expect-error a hook for one stage does not fit another
    smtp.on('connect', judge);
    // @ts-expect-error a refusal needs a code, a status and a sentence
    smtp.on('ehlo', () => reject('No'));
  },
});

// @ts-expect-error an endpoint says who may use it
defineEndpoint({ method: 'GET', path: '/things', summary: 'Things', group: 'Site', handle: () => ({}) });

const site = await drive(things, { options: { size: 4 } });
// @ts-expect-error a clock is turned by spans
await site.clock.advance(60);
