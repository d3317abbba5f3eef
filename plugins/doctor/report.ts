import type { FindingState } from '../../core/contracts/doctor-check.js';
import { pluralize } from '../../core/text/format.js';
import type { ReportedFinding } from './examination.js';

const width = 80;
const indent = 11;
const words: Readonly<Record<FindingState, string>> = {
  ok: 'ok',
  advice: 'advice',
  problem: 'PROBLEM',
  skipped: 'skipped',
};
/** SGR codes (ECMA-48): green, yellow, bold red, dim. */
const colours: Readonly<Record<FindingState, string>> = { ok: '32', advice: '33', problem: '1;31', skipped: '2' };

/** For a person at a terminal of 80 columns. */
export function textReport(findings: readonly ReportedFinding[], title: string, coloured: boolean): string {
  const paint = (code: string, text: string): string => (coloured ? `\u001B[${code}m${text}\u001B[0m` : text);
  const groups = [...new Set(findings.map(({ group }) => group))];
  const blocks = groups.map((group) => {
    const lines = findings.filter((finding) => finding.group === group).flatMap((finding) => linesOf(finding, paint));
    return [paint('1', group), ...lines].join('\n');
  });
  return [title, ...blocks, summary(findings)].join('\n\n');
}

function linesOf({ state, is, todo }: ReportedFinding, paint: (code: string, text: string) => string): string[] {
  const [first = '', ...rest] = wrapped(is, width - indent);
  const word = paint(colours[state], words[state].padEnd(indent - 2));
  const margin = ' '.repeat(indent);
  const advice = todo === undefined ? [] : wrapped(todo, width - indent - 3);
  return [
    `  ${word}${first}`,
    ...rest.map((line) => `${margin}${line}`),
    ...advice.map((line, index) => `${margin}${index === 0 ? '→ ' : '  '}${line}`),
  ];
}

/** Between words; one that is longer than a line, such as a path, has a line of its own. */
function wrapped(text: string, columns: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > columns) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

export function countByState(findings: readonly ReportedFinding[]): Readonly<Record<FindingState, number>> {
  const count = (state: FindingState) => findings.filter((finding) => finding.state === state).length;
  return { ok: count('ok'), advice: count('advice'), problem: count('problem'), skipped: count('skipped') };
}

function summary(findings: readonly ReportedFinding[]): string {
  const { ok, advice, problem, skipped } = countByState(findings);
  const problems = problem === 0 ? 'no problems' : pluralize(problem, 'problem');
  const pieces = advice === 0 ? 'no pieces of advice' : pluralize(advice, 'piece of advice', 'pieces of advice');
  return `${capital(problems)}, ${pieces}; ${ok} ok, ${skipped} skipped.`;
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
