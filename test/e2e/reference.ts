import type { EndpointDescription } from '../../core/contracts/server.js';
import { problems } from '../../core/problem.js';
import type { SourceFile } from '../architecture/source-file.js';

/** What the reference is printed from. */
export interface ReferenceSource {
  /** What `postern --help` prints, and the help of each command. */
  readonly help: string;
  readonly endpoints: readonly EndpointDescription[];
  /** Text of `/metrics/prometheus`. */
  readonly metrics: string;
  readonly sources: readonly SourceFile[];
}

const introduction = `# Reference

Commands, endpoints, problems, metrics and lines of the log, printed from the code. [configuration.md](configuration.md) has every setting,
[plugins.md](plugins.md) hooks and services, and \`/openapi.json\` of a running server the parameters, bodies and answers of each endpoint.`;

/** `docs/reference.md`. */
export function referenceOf({ help, endpoints, metrics, sources }: ReferenceSource): string {
  const sections = [
    introduction,
    `## Commands\n\n\`\`\`text\n${help.trim()}\n\`\`\``,
    `## Exit statuses\n\n${table(['Status', 'Means'], exitStatuses)}`,
    `## Endpoints\n\n\`public\` needs no account; \`read\`, \`operate\` and \`admin\` are roles.\n\n${table(
      ['Method', 'Path', 'Access', 'What it does'],
      endpoints.map(({ method, path, access, summary }) => [method, code(path), access, summary]),
    )}`,
    `## Problems\n\nAn answer that is an error is a problem (RFC 9457); its \`type\` ends in the name. SMTP answers with code and status (RFC 3463).\n\n${table(
      ['Name', 'HTTP', 'SMTP', 'Title'],
      Object.entries(problems).map(([name, { http, smtp, title }]) => [
        code(name),
        String(http),
        smtp.join(' '),
        title,
      ]),
    )}`,
    `## Metrics\n\nThose of the process (\`process_…\`, \`nodejs_…\`) are described in \`/metrics/prometheus\`, those of a cluster (\`postern_cluster_…\`) in\n[Several servers](cluster.md#watching-it). Those of
\`proxy\` have the label \`rule\` too, those of \`lmtp\` the label \`route\`.\n\n${table(
      ['Name', 'Type', 'Labels', 'What it counts'],
      metricRows(metrics, sources),
    )}`,
    `## Lines of the log\n\nBy \`msg\`; every line has \`level\` and \`time\` too. Lines whose \`msg\` is made of values are not here.\n\n${table(
      ['msg', 'Level', 'Fields', 'From'],
      logRows(sources),
    )}`,
  ];
  return `${sections.join('\n\n')}\n`;
}

const exitStatuses = [
  ['0', 'done; `doctor`: nothing is wrong; `start`: stopped as it was asked to'],
  ['1', 'refused or failed, with a sentence; `doctor`: something is wrong; `status`: the server is down'],
  ['2', 'the command was called wrongly; the usage is printed'],
];

const metricRow = /^# HELP (postern_\w+) (.*)\n# TYPE \S+ (\w+)$/gm;

function metricRows(text: string, sources: readonly SourceFile[]): readonly (readonly string[])[] {
  const calls = sources.flatMap((source) => callsOf(source, /\.(counter|gauge|histogram)(?:<\w+>)?\(/g));
  const named = calls.map(({ args }) => ({ name: metricNameOf(args), labels: labelsOf(args) }));
  return [...text.matchAll(metricRow)].map(([, name = '', help = '', type = '']) => {
    const labels = named.find((metric) => metric.name.test(name))?.labels ?? [];
    return [code(name), type, labels.map(code).join(', '), help];
  });
}

/** A name may begin with a value: `${prefix}_seconds`. */
const metricNameOf = ([name]: readonly Span[]): RegExp =>
  new RegExp(`^postern_${(name?.text ?? '').replace(/\$\{\w+\}/g, '[a-z]+').slice(1, -1)}$`);

/** The last list of strings. */
const labelsOf = (args: readonly Span[]): readonly string[] =>
  args
    .filter(({ text }) => text.startsWith('[') && text.includes("'"))
    .slice(-1)
    .flatMap(({ text }) => [...text.matchAll(/'(\w+)'/g)].map(([, label = '']) => label));

function logRows(sources: readonly SourceFile[]): readonly (readonly string[])[] {
  const rows = sources.flatMap((source) =>
    callsOf(source, /\b#?log\??\.(info|warn|error|fatal)\(/gi).flatMap(({ word, args }) => {
      const msg = stringOf(args.at(-1));
      return msg === undefined ? [] : [[msg, word, fieldsOf(args).map(code).join(', '), roomOf(source.path)]];
    }),
  );
  const lines = new Map(rows.map((row) => [row.join('\n'), row]));
  return [...lines.values()].toSorted(([a = ''], [b = '']) => a.localeCompare(b));
}

const roomOf = (path: string): string => path.split('/').slice(0, 2).join('/');

/** Keys of the first argument, when it is an object literal. */
function fieldsOf([first]: readonly Span[]): readonly string[] {
  if (first?.text.startsWith('{') !== true) return [];
  const inner = spansOf({ text: first.text.slice(1, -1), code: first.code.slice(1, -1) });
  return inner.flatMap(({ text }) => (/^(?:'([\w-]+)'|(\w+))\s*(?::|$)/.exec(text) ?? []).slice(1).filter(Boolean));
}

const stringOf = (arg?: Span): string | undefined => /^(['"])(.*)\1$/.exec(arg?.text ?? '')?.[2];

/** A part of a source; in its code, strings and comments are blank. */
type Span = Pick<SourceFile, 'text' | 'code'>;

interface Call {
  readonly word: string;
  readonly args: readonly Span[];
}

/** Calls whose beginning matches; the first group is their word. */
function callsOf(source: Span, beginning: RegExp): readonly Call[] {
  return [...source.code.matchAll(beginning)].map((match) => {
    const from = match.index + match[0].length;
    const to = endOf(source.code, from);
    return {
      word: match[1] ?? '',
      args: spansOf({ text: source.text.slice(from, to), code: source.code.slice(from, to) }),
    };
  });
}

/** Where the bracket ends that is open at `from`. */
function endOf(code: string, from: number): number {
  let depth = 0;
  for (let at = from; at < code.length; at += 1) {
    const char = code[at] ?? '';
    if ('([{'.includes(char)) depth += 1;
    else if (')]}'.includes(char)) depth -= 1;
    if (depth < 0) return at;
  }
  return code.length;
}

/** The parts between commas that are in no bracket. */
function spansOf({ text, code }: Span): readonly Span[] {
  const ends: number[] = [];
  for (let at = 0; at < code.length; at += 1) {
    if ('([{'.includes(code[at] ?? '')) at = endOf(code, at + 1);
    else if (code[at] === ',') ends.push(at);
  }
  const parts = [...ends, code.length].map((end, index) => {
    const begin = index === 0 ? 0 : (ends[index - 1] ?? 0) + 1;
    const part = text.slice(begin, end);
    const skipped = part.length - part.trimStart().length;
    return { text: part.trim(), code: code.slice(begin + skipped, begin + skipped + part.trim().length) };
  });
  return parts.filter((part) => part.text !== '');
}

const code = (text: string): string => `\`${text}\``;

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}
