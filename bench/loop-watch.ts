import { monitorEventLoopDelay } from 'node:perf_hooks';
import { definePlugin, defineEndpoint, z } from '../core/plugin.js';

/** Tells how long the event loop was held up at most since it was asked last. */
export const loopWatch = definePlugin({
  name: 'bench-loop',
  options: z.strictObject({}),
  setup({ http, onClose }) {
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    onClose(() => void delay.disable());
    http.mount([
      defineEndpoint({
        method: 'GET',
        path: '/bench/loop',
        summary: 'How long the event loop was held up',
        group: 'Bench',
        access: 'operate',
        answer: z.object({ maxMs: z.number() }),
        handle() {
          const maxMs = delay.max / 1e6;
          delay.reset();
          return { maxMs };
        },
      }),
    ]);
  },
});
