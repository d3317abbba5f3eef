import { target } from './import-rules.js';
import type { SourceFile } from './source-file.js';

/**
 * Circles of files, imports of types included: a reader of such a file has no place to begin.
 *
 * @returns one path for each cycle found, from a module back to itself
 */
export function cycles(files: readonly SourceFile[]): readonly string[] {
  const graph = new Map(files.map((file) => [file.path, file.imports.map((line) => target(file, line))]));
  const done = new Set<string>();
  const found: string[] = [];
  const visit = (path: string, way: readonly string[]) => {
    if (way.includes(path)) {
      found.push([...way.slice(way.indexOf(path)), path].join(' → '));
      return;
    }
    if (done.has(path)) return;
    for (const next of graph.get(path) ?? []) visit(next, [...way, path]);
    done.add(path);
  };
  for (const path of graph.keys()) visit(path, []);
  return found;
}
