import { monitorEventLoopDelay } from 'node:perf_hooks';
import { start } from '../core/main.js';
import { ClusterNode } from '../plugins/cluster/node.js';
import { password } from './site.js';

/**
 * A server of the benchmark `cluster`, as a child: `cluster-site.js FOLDER [unfenced]`. Tells its ports, and at each message
 * how long its event loop was held up at most since the last one.
 */
const [folder = '', fence] = process.argv.slice(2);
if (fence === 'unfenced') ClusterNode.prototype.mayEnd = () => true;
const delay = monitorEventLoopDelay({ resolution: 1 });
const server = await start({}, { cwd: folder, env: { POSTERN_ADMIN_PASSWORD: password }, print: () => undefined });
process.on('message', () => {
  process.send?.({ maxMs: delay.max / 1e6 });
  delay.reset();
});
process.on('SIGTERM', () => void server.stop().then(() => process.exit(0)));
process.send?.({ http: server.app.http.address().port, smtp: server.app.smtp.addresses()[0]?.port });
delay.enable();
