import { basename } from 'node:path';
import { matches, type Rule } from './rule.js';
import type { SourceFile } from './source-file.js';

/** Where the process and the machine themselves are the subject, and why. */
export const allowances: readonly { readonly path: string; readonly word: string; readonly reason: string }[] = [
  { path: 'core/clock.ts', word: 'Date.now', reason: 'the one clock that everybody else is given' },
  { path: 'core/postern.cts', word: 'process.env', reason: 'the size of the thread pool is set before anything runs' },
  {
    path: 'core/entry.ts',
    word: 'process.env',
    reason: 'where compiled code lies is settled before anything else is loaded',
  },
  { path: 'core/cli/cli.ts', word: 'process.env', reason: 'the command line hands the environment in' },
  {
    path: 'plugins/monitoring/system/environment.ts',
    word: 'process.env',
    reason: 'the page of the environment shows it',
  },
  { path: 'plugins/monitoring/system/environment.ts', word: 'process.env', reason: 'the page about the environment' },
  { path: 'core/cli/serve.ts', word: 'process.exit', reason: 'the process is the server' },
];

const globals = /\b(?:process\.(?:env|exit)\b|console\.\w+|Date\.now\b|Math\.random\b)|(?<![\w$.])new Date\(\)/g;

const shipped = (file: SourceFile) => /^(core|plugins)\//.test(file.path);

/** The uses of a global that `allowances` does not speak for. */
function globalsIn(file: SourceFile): readonly string[] {
  if (!shipped(file)) return [];
  const allowed = allowances.filter(({ path }) => path === file.path).map(({ word }) => word);
  return matches(file.code, globals).filter((found) => !allowed.some((word) => found.includes(word)));
}

const longestFunction = 70;

/** Functions by their first and last line, as prettier lays them out: the closing brace stands below the first word. */
function longFunctions(file: SourceFile): readonly string[] {
  const lines = file.code.split('\n');
  return lines.flatMap((line, start) => {
    const opens = /\bfunction\b.*\{$|=> \{$|^\s+(?:(?:static|async|get|set) )*#?\w+\([^;]*\)(?:: .+)? \{$/.test(line);
    if (!opens || /^\s*(?:if|for|while|switch|catch|\} )/.test(line)) return [];
    const indent = /^\s*/.exec(line)?.[0] ?? '';
    const length = lines.slice(start).findIndex((below) => below.startsWith(`${indent}}`)) + 1;
    return length > longestFunction ? [`line ${start + 1}: a function of ${length} lines`] : [];
  });
}

const find =
  (pattern: RegExp): Rule['faults'] =>
  (file) =>
    matches(file.code, pattern);

export const textRules: readonly Rule[] = [
  {
    title: 'the environment, the process, the console, the time and chance are used only where they are the subject',
    faults: globalsIn,
    breach: { path: 'core/smtp/server/session.ts', text: 'const started = Date.now();' },
    allowed: { path: 'core/smtp/server/session.ts', text: "// Date.now() may jump\nconst text = 'console.log';" },
  },
  {
    title: `no function of the server has more than ${longestFunction} lines`,
    faults: (file) => (shipped(file) ? longFunctions(file) : []),
    breach: { path: 'core/long.ts', text: `function f() {\n${'  x;\n'.repeat(longestFunction)}}\n` },
    allowed: { path: 'core/long.ts', text: `function f() {\n${'  x;\n'.repeat(longestFunction - 2)}}\n` },
  },
  {
    title: 'file names are nouns, never utils, helpers, common, types, manager or misc',
    faults: ({ path }) =>
      /^(utils?|helpers?|common|types?|managers?|misc|shared|stuff)\.|-(utils?|helpers?)\./.test(basename(path))
        ? [basename(path)]
        : [],
    breach: { path: 'core/http/utils.ts', text: '' },
    allowed: { path: 'core/http/media-type.ts', text: '' },
  },
  {
    title: 'core names no plugin and no delivery target outside of its contracts',
    faults: ({ path, text }) =>
      path.startsWith('core/') && !path.startsWith('core/contracts/')
        ? matches(text, /'(?:retry|bounce|mailbox|relay|client-queue|store|users|monitoring)'/g)
        : [],
    breach: { path: 'core/pipeline/commit.ts', text: "const fallback = 'bounce';" },
    allowed: { path: 'core/pipeline/commit.ts', text: 'const fallback = targets.bounce;' },
  },
  {
    title: 'exports have names',
    faults: find(/^export default\b|\bas default\b/gm),
    breach: { path: 'core/app.ts', text: 'export default function app() {}' },
    allowed: { path: 'core/app.ts', text: "import koa, { type default as K } from 'koa';" },
  },
  {
    title: 'nothing is of type any',
    faults: find(/(?<=[:<,|&([]\s*|\b(?:as|satisfies|extends|readonly) )any\b(?!\s*[(.:?])/g),
    breach: { path: 'core/app.ts', text: 'const parse = (text: string): any => text;' },
    allowed: { path: 'core/app.ts', text: '// any of them\nawait Promise.any(all);' },
  },
  {
    title: 'nothing is asserted not to be null',
    faults: find(/[\w)\]]!(?!=)/g),
    breach: { path: 'core/app.ts', text: 'const first = lines[0]!;' },
    allowed: { path: 'core/app.ts', text: 'if (a !== b && !c) return !(await d());' },
  },
  {
    title: 'only code that can be erased: no enum, no namespace, no parameter property',
    faults: find(/^\s*(?:export )?(?:declare )?(?:const )?(?:enum|namespace) \w+|\(\s*(?:private|public|protected) /gm),
    breach: { path: 'core/app.ts', text: 'export enum State { Up }' },
  },
  {
    title: 'state is #private',
    faults: find(/^\s+(?:private|protected) (?!constructor\b)\w/gm),
    breach: { path: 'core/app.ts', text: 'class A {\n  private lines: string[] = [];\n}' },
  },
  {
    title: 'nothing is left for later and no check is switched off',
    faults: (file) =>
      file.path.startsWith('test/architecture/')
        ? []
        : matches(
            file.text,
            /\b(?:TODO|FIXME|XXX|HACK)\b|@ts-(?:ignore|nocheck)|(?:eslint|oxlint)-disable(?!-next-line)/g,
          ),
    breach: { path: 'core/app.ts', text: '// TODO: close it' },
  },
];
