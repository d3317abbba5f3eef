import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { projectRoot } from './project.js';

/** The code blocks of a document that stand below `<!-- example: FILE -->`, by file. */
export async function examplesOf(document: string): Promise<ReadonlyMap<string, string>> {
  const text = await readFile(join(projectRoot, document), 'utf8');
  const blocks = text.matchAll(/<!-- example: (\S+) -->\s*```\w+\n([\s\S]*?)```/g);
  return new Map([...blocks].map(([, file = '', code = '']) => [file, code]));
}
