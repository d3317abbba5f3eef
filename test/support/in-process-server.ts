import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { start, type RunningServer, type StartOptions } from '../../core/main.js';
import { atEnd, type Ending } from './ending.js';
import { HttpClient } from './http-client.js';
import { adminPassword, freeListeners } from './server-process.js';
import { temporaryFolder } from './temporary-folder.js';

export interface InProcessServer {
  readonly server: RunningServer;
  readonly folder: string;
  readonly base: string;
  readonly admin: HttpClient;
  portOf(listener: string): number;
}

/** The whole server in this process, in a folder of its own that may be prepared; stopped when the test ends. */
export async function startInProcess(
  test: Ending,
  config = `{ smtp: { listeners: ${freeListeners} } }`,
  options: StartOptions = {},
  prepare: (folder: string) => Promise<void> = () => Promise.resolve(),
): Promise<InProcessServer> {
  const folder = await temporaryFolder(test);
  await writeFile(join(folder, 'postern.json5'), config);
  await prepare(folder);
  const server = await start(
    { httpPort: 0, ...options },
    { cwd: folder, env: { POSTERN_ADMIN_PASSWORD: adminPassword }, print: () => undefined },
  );
  atEnd(test, () => server.stop());
  const { host, port } = server.app.http.address();
  const base = `http://${host}:${port}`;
  return {
    server,
    folder,
    base,
    admin: HttpClient.admin(base),
    portOf: (listener) => server.app.smtp.addresses().find(({ name }) => name === listener)?.port ?? 0,
  };
}
