import { definePlugin, z, type Command, type Delivery, type DeliveryTarget } from '../../core/plugin.js';

const delivery: Delivery = {
  body: async () => undefined,
  commit: async () => [],
  abort: async () => undefined,
};
const archive: DeliveryTarget = {
  start(_transaction, recipients) {
    void recipients.map(({ address }) => address.address);
    return Promise.resolve(delivery);
  },
};
const command: Command<{ readonly size: number }> = {
  name: 'things',
  summary: 'Things: list',
  usage: ['postern things list'],
  async run({ args, options, owner, terminal }) {
    const answer = await owner?.('GET', `/things/${args.length * options.size}`);
    terminal.print(String(answer?.status));
  },
};

definePlugin({
  name: 'well-formed',
  options: z.strictObject({ size: z.number().default(3) }),
  views: '/site/things/views',
  assets: '/site/things/assets',
  commands: [command],
  async setup({ smtp, metrics, health, every, folder, onClose, log, clock }) {
    smtp.deliverTo('archive', archive);
    const sent = metrics.counter('things_sent_total', 'Things sent.', ['result']);
    sent.inc({ result: 'ok' });
    health.check('things', () => ({ status: 'degraded', why: 'None is left.' }));
    every(60, async () => log.info({ at: clock.now() }, 'a minute is over'));
    const place: string = await folder('things');
    onClose(() => log.info({ place }, 'closed'));
  },
});

definePlugin({
  name: 'wrong-context',
  async setup({ smtp, metrics, health, every, folder, onClose }) {
    // @ts-expect-error a target starts deliveries
    smtp.deliverTo('archive', { deliver: async () => undefined });
    // @ts-expect-error a delivery begins, and is then committed or aborted
    smtp.deliverTo('archive', { start: async () => ({ body: async () => undefined }) });
    const sent = metrics.counter('things_sent_total', 'Things sent.', ['result']);
    // @ts-expect-error labels are declared
    sent.inc({ outcome: 'ok' });
    // @ts-expect-error states are up, degraded and down
    health.check('things', () => ({ status: 'bad' }));
    // @ts-expect-error first the seconds, then the task
    every(() => undefined, 60);
    // @ts-expect-error a folder is asked for by name
    await folder();
    // @ts-expect-error what is closed is a function
    onClose('things');
  },
});

// @ts-expect-error a folder is a path
definePlugin({ name: 'wrong-assets', assets: ['a.css'], setup() {} });

// @ts-expect-error options are a schema
definePlugin({ name: 'wrong-options', options: { size: 3 }, setup() {} });

// @ts-expect-error a plugin is set up
definePlugin({ name: 'no-setup' });

// @ts-expect-error a plugin has a name
definePlugin({ setup() {} });

definePlugin({
  name: 'wrong-command',
  options: z.strictObject({ colour: z.string() }),
  // @ts-expect-error the command is for other options
  commands: [command],
  setup() {},
});

// @ts-expect-error a command says how it is used
const unused: Command<unknown> = { name: 'things', summary: 'Things', run: async () => undefined };
void unused;
