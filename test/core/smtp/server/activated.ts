/** An engine on the socket that file descriptor 3 is, in a process of its own; ends with its standard input. */
import { TestEngine } from './test-engine.js';

const releases: (() => void | Promise<void>)[] = [];
await TestEngine.start({ after: (release) => releases.push(release) }, { settings: { listeners: [{ fd: 3 }] } });
process.stdout.write('ready\n');
process.stdin.resume().once('end', () => {
  void Promise.all(releases.map(async (release) => release())).then(() => process.exit(0));
});
