import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { examplesOf } from '../support/document-examples.js';
import { findPeer, type Peer } from '../support/peers.js';
import { projectRoot } from '../support/project.js';
import { ShippedPackage, type ShippedServer } from '../support/shipped-package.js';
import { temporaryFolder } from '../support/temporary-folder.js';

interface Block {
  /** `start` stands for a terminal of its own, in which the server goes on running. */
  readonly kind: 'run' | 'start';
  /** A program that it needs beside curl and the shell. */
  readonly needs: string | undefined;
  readonly script: string;
}

/** The blocks of a document for a shell, in their order: those below `<!-- run -->`, `<!-- run: swaks -->` and `<!-- start -->`. */
async function shellBlocks(document: string): Promise<readonly Block[]> {
  const text = await readFile(join(projectRoot, document), 'utf8');
  const blocks = text.matchAll(/<!-- (run|start)(?:: (\S+))? -->\s*```sh\n([\s\S]*?)```/g);
  return [...blocks].map(([, kind, needs, script = '']) => ({
    kind: kind === 'start' ? 'start' : 'run',
    needs,
    script,
  }));
}

/** What a reader would see on the own screen instead of what the document says. */
const onThisMachine = (script: string, { http, smtpPort, password }: ShippedServer): string =>
  script
    .replaceAll('http://127.0.0.1:8080', http)
    .replaceAll('127.0.0.1:2525', `127.0.0.1:${smtpPort}`)
    .replaceAll('PASSWORD', password);

test('the commands of docs/plugins.md print what it says', async (t) => {
  const postern = await ShippedPackage.unpack(t);
  const folder = await temporaryFolder(t);
  const blocks = await shellBlocks('docs/plugins.md');
  assert.deepEqual(blocks.filter(({ kind }) => kind === 'start').length, 1, 'the server is started once');
  const said: string[] = [];
  let server: ShippedServer | undefined;
  for (const { kind, needs, script } of blocks) {
    if (kind === 'start') {
      assert.equal(script.trim(), 'postern start');
      server = await postern.start(t, folder);
    } else if (needs !== undefined && findPeer(needs as Peer) === undefined)
      t.diagnostic(`without ${needs}: ${script}`);
    else {
      const { code, output } = await postern.sh(server === undefined ? script : onThisMachine(script, server), folder);
      assert.equal(code, 0, `${script}\n${output}`);
      said.push(output);
    }
  }
  const all = said.join('\n');
  assert.match(all, /^ℹ pass 4$/m);
  assert.match(all, /\.\/doorman: no mistakes found\./);
  assert.match(all, /no mistakes found\. Plugins: .*doorman/);
  assert.match(all, /"status":"reloaded"[^\n]*doorman/);
  assert.match(all, /The server runs these plugins[\s\S]*^doorman {2}\.\/doorman$/m);
  assert.match(all, /"status":422[^\n]*health\.chek is not a function/);
  assert.match(all, /error {4}index\.js:\d+:\d+ {2}TypeError: health\.chek is not a function[\s\S]*a mistake/);
  if (findPeer('swaks') === undefined) return;
  assert.match(all, /550 5\.7\.1 This sender is not welcome here[\s\S]*refused/);
  assert.match(
    all,
    /"sender":"spam@example\.com","verdict":"refused"\},\{[^}]*"sender":"anna@example\.com","verdict":"passed"/,
  );
});

test('every block of code in docs/plugins.md is tried by a test, or is a line that cannot stand alone', async () => {
  const text = await readFile(join(projectRoot, 'docs/plugins.md'), 'utf8');
  const blocks = [...text.matchAll(/^```(\w+)\n([\s\S]*?)^```/gm)];
  const tried = [
    ...(await examplesOf('docs/plugins.md')).values(),
    ...(await shellBlocks('docs/plugins.md')).map(({ script }) => script),
  ];
  const untried = blocks.filter(([, , code = '']) => !tried.includes(code)).map(([, , code = '']) => code.trim());
  assert.deepEqual(
    untried.filter((code) => code.includes('\n')),
    [],
  );
});
