import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Ending } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { ShippedPackage } from '../support/shipped-package.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import type { RoadStep } from './setup-road.js';

const refused = 'spam@example.com';

/**
 * Goes the road of an author of a plugin, as "A first plugin" of docs/plugins.md has it: from an empty folder beside an installed
 * server to a mail that the plugin refuses, and the page of the plugin that shows it.
 *
 * @returns each command with its time, the reply to the refused sender, and the page
 */
export async function pluginRoad(test: Ending) {
  const postern = await ShippedPackage.unpack(test);
  const folder = await temporaryFolder(test);
  const steps: RoadStep[] = [];
  const timed = async <T>(command: string, work: () => Promise<T>): Promise<T> => {
    const began = performance.now();
    const result = await work();
    steps.push({ command, seconds: (performance.now() - began) / 1000 });
    return result;
  };
  for (const command of ['plugin new doorman', 'plugin test ./doorman', 'plugin check ./doorman']) {
    const { code, output } = await timed(`postern ${command}`, () => postern.sh(`postern ${command}`, folder));
    if (code !== 0) throw new Error(`postern ${command} ends with ${code}: ${output}`);
  }
  const config = { sitePlugins: ['./doorman'], plugins: { doorman: { refuse: [refused] } } };
  await timed('an editor: postern.json5', () => writeFile(join(folder, 'postern.json5'), JSON.stringify(config)));
  const server = await timed('postern start', () => postern.start(test, folder));
  const reply = await timed(`swaks --from ${refused}`, async () => {
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    const { raw } = await client.command(`MAIL FROM:<${refused}>`);
    client.close();
    return raw.trim();
  });
  const admin = HttpClient.admin(server.http, server.password);
  const page = await timed('a browser: /doorman', () => admin.page('/doorman'));
  return { steps, reply, page };
}
