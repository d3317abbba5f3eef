import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface ImportLine {
  readonly specifier: string;
  /** `import type`, or every name in the braces is a type. */
  readonly typeOnly: boolean;
  /** Names as exported; empty for `import 'x'`, `import * as` and `import()`. */
  readonly names: readonly string[];
}

/** A source text as the rules look at it. */
export interface SourceFile {
  /** From the project's root, with `/`. */
  readonly path: string;
  readonly text: string;
  /** The text with comments, strings and regular expressions blanked out; same length, same lines. */
  readonly code: string;
  readonly imports: readonly ImportLine[];
}

export function sourceFile(path: string, text: string): SourceFile {
  const code = blankOut(text);
  return { path, text, code, imports: importLines(text, code) };
}

/** All files below the folders whose name matches. */
export function readSources(root: string, folders: readonly string[], ending: RegExp): readonly SourceFile[] {
  return folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => ending.test(name))
      .sort()
      .map((name) => sourceFile(`${folder}/${name}`, readFileSync(join(root, folder, name), 'utf8'))),
  );
}

const beforeRegExp = String.raw`(?<=(?:^|[(,=:[!&|?{};+\-*%<>~\n]|\b(?:return|typeof|case|in|of|void|throw|else|await|yield))\s*)`;
const regExp = String.raw`\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/[dgimsuvy]*`;
const comment = String.raw`\/\/[^\n]*|\/\*[\s\S]*?\*\/`;
const string = String.raw`'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"`;
const tokens = new RegExp(`${comment}|${string}|${beforeRegExp}${regExp}|[\`{}]`, 'g');
const templateChunk = /(?:\\[\s\S]|\$(?!\{)|[^`\\$])*(?:`|\$\{|$)/y;

/** Keeps the first and the last character of each string, so that quotes still show where it stood. */
function blankOut(text: string): string {
  let code = '';
  let at = 0;
  /** For each template literal that is open: how many braces are open in its present `${`. */
  const open: number[] = [];
  const take = (end: number) => {
    code += text.slice(at, end);
    at = end;
  };
  const blank = (end: number, kept: number) => {
    code += text.slice(at, at + kept) + text.slice(at + kept, end - kept).replace(/[^\n]/g, ' ');
    code += text.slice(end - kept, end);
    at = end;
  };
  const template = () => {
    templateChunk.lastIndex = at;
    const chunk = templateChunk.exec(text)?.[0] ?? '';
    const closes = !chunk.endsWith('${');
    blank(at + chunk.length - (closes ? 1 : 2), 0);
    take(at + (closes ? 1 : 2));
    if (!closes) open.push(0);
  };
  for (;;) {
    tokens.lastIndex = at;
    const found = tokens.exec(text);
    if (found === null) return code + text.slice(at);
    const [token] = found;
    take(found.index);
    const depth = open.at(-1);
    if (token === '`') {
      take(at + 1);
      template();
    } else if (token === '}' && depth === 0) {
      open.pop();
      take(at + 1);
      template();
    } else if (token === '{' || token === '}') {
      if (depth !== undefined) open[open.length - 1] = depth + (token === '{' ? 1 : -1);
      take(at + 1);
    } else blank(at + token.length, token.startsWith("'") || token.startsWith('"') ? 1 : 0);
  }
}

const fromLine = /(?:^|\n)\s*(?:import|export)\s+(type\s+)?([^'";]*?)\s*from\s*(['"])(\s*)\3/g;
const bareLine = /(?:\bimport\s*\(?|\brequire\s*\()\s*(['"])(\s*)\1/g;

const allTypes = (members: readonly string[]) =>
  members.length > 0 && members.every((member) => member.startsWith('type '));

function importLines(text: string, code: string): readonly ImportLine[] {
  const specifierAt = (end: number, length: number) => text.slice(end - 1 - length, end - 1);
  const found: ImportLine[] = [];
  for (const line of code.matchAll(fromLine)) {
    const [whole, type, clause = '', , blanks = ''] = line;
    const braces = /\{([^}]*)\}/.exec(clause)?.[1];
    const members = (braces ?? '')
      .split(',')
      .map((member) => member.trim())
      .filter((member) => member !== '');
    found.push({
      specifier: specifierAt(line.index + whole.length, blanks.length),
      typeOnly: type !== undefined || (clause.startsWith('{') && allTypes(members)),
      names: members.map((member) => member.replace(/^type\s+/, '').replace(/\s+as\s.*$/, '')),
    });
  }
  for (const line of code.matchAll(bareLine)) {
    const [whole, , blanks = ''] = line;
    found.push({
      specifier: specifierAt(line.index + whole.length, blanks.length),
      typeOnly: false,
      names: [],
    });
  }
  return found;
}
