import { z } from 'zod';
import { definePlugin, service } from '../../core/plugin.js';

const clockwork = service<{ tick(): number }>('test.clockwork');

definePlugin({
  name: 'well-formed',
  options: z.strictObject({ size: z.number().default(3) }),
  needs: { clockwork },
  setup(_context, { options, clockwork }) {
    const sum: number = options.size + clockwork.tick();
    void sum;
  },
});

definePlugin({
  name: 'asynchronous-without-options',
  async setup({ folder }) {
    await folder('somewhere');
  },
});

definePlugin({
  name: 'watches-outcomes',
  setup({ smtp }) {
    smtp.watch('outcome', ({ id, recipient, reply, nextAttemptAt }) => {
      const said: string = `${id} ${recipient.address} ${reply?.code ?? ''} ${nextAttemptAt ?? ''}`;
      void said;
    });
    // @ts-expect-error an outcome has no transaction
    smtp.watch('outcome', ({ transaction }) => void transaction);
    // @ts-expect-error an outcome says how it ended
    smtp.tell(() => ({ id: 'one', reversePath: null, attempts: 1, nextAttemptAt: null, at: 0, target: 'mine' }));
  },
});

definePlugin({
  name: 'provides-what-it-says',
  options: z.strictObject({}),
  provides: { clockwork },
  setup: () => ({ clockwork: { tick: () => 1 } }),
});

definePlugin({
  name: 'undeclared-need',
  options: z.strictObject({}),
  // @ts-expect-error a service that is not in `needs` is not given
  setup(_context, { clockwork }) {
    void clockwork;
  },
});

definePlugin({
  name: 'missing-provide',
  options: z.strictObject({}),
  provides: { clockwork },
  // @ts-expect-error what `provides` names must be returned
  setup: () => ({}),
});

definePlugin({
  name: 'wrong-provide',
  options: z.strictObject({}),
  provides: { clockwork },
  // @ts-expect-error the returned service has another shape
  setup: () => ({ clockwork: { tick: () => 'one' } }),
});

definePlugin({
  name: 'unknown-option',
  options: z.strictObject({ size: z.number().default(3) }),
  setup(_context, { options }) {
    // @ts-expect-error options have the shape of their schema
    void options.colour;
  },
});

definePlugin({
  name: 'optional-service',
  options: z.strictObject({}),
  uses: { clockwork },
  setup(_context, { clockwork }) {
    // @ts-expect-error a service in `uses` may be missing
    void clockwork.tick();
  },
});
