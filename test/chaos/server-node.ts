import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { start } from '../../core/main.js';
import { ContentWriter } from '../../core/smtp/client/content.js';
import { ClusterNode } from '../../plugins/cluster/node.js';
import { stopHere } from './node-life.js';
import type { NodeArguments } from './node-process.js';

/** A whole server as a node of the chaos run: it takes mail for everybody, and gives all of it to the sink. */
const given = JSON.parse(process.argv[2] ?? '') as NodeArguments;
const { database, name, sinkPort, sessionMs, fence, smtpPort = 0, folder = '', stopBeforeDot = 0 } = given;

type Question = (this: ClusterNode, session: string) => boolean | Promise<boolean>;
const mayEnd: Question = Reflect.get(ClusterNode.prototype, 'mayEnd');
type Write = ContentWriter['write'];
let writing = 0;
let dots = 0;
ClusterNode.prototype.mayEnd = function question(session) {
  const answer = (): boolean | Promise<boolean> => fence === 'none' || mayEnd.call(this, session);
  // It is also asked at DATA.
  if (writing > 0) dots += 1;
  return writing > 0 && dots === stopBeforeDot ? stopHere(session).then(answer) : answer();
};
const write: Write = Reflect.get(ContentWriter.prototype, 'write');
ContentWriter.prototype.write = function writeAndAsk(content) {
  writing += 1;
  const written = write.call(this, content);
  if (written instanceof Promise) return written.finally(() => (writing -= 1));
  writing -= 1;
  return written;
};

const { port, pathname } = new URL(database);
const configuration = {
  hostname: `${name}.example`,
  http: { port: 0 },
  smtp: {
    listeners: [{ mode: 'mx', port: smtpPort }],
    relayNetworks: ['127.0.0.0/8'],
  },
  plugins: {
    cluster: {
      node: name,
      database: { hosts: [`127.0.0.1:${port}`], name: pathname.slice(1), user: 'postgres', tls: 'off' },
      sessionSeconds: Math.max(2, Math.ceil(sessionMs / 1000)),
    },
    'client-queue': {
      routes: { sink: { mx: ['127.0.0.1'], port: sinkPort, tls: 'never' } },
      defaultRoute: 'sink',
      retry: { firstSeconds: 1, maxSeconds: 2 },
      warnAfter: 0,
      housekeepingInterval: 1,
      destination: { maxConnections: 24 },
    },
  },
};
await writeFile(join(folder, 'postern.json5'), JSON.stringify(configuration));
await start({}, { cwd: folder, env: { POSTERN_ADMIN_PASSWORD: 'not used in this run' }, print: () => undefined });
