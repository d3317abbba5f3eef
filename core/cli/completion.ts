import { usageError } from '../problem.js';

/** A command, by its words (`queue list`), as the shell completes it. */
export interface CompletedCommand {
  readonly words: string;
  readonly summary: string;
  /** Its own: `--since`. */
  readonly options?: readonly string[];
}

interface Word {
  readonly summary: string;
  readonly options: string;
  /** Second words. */
  readonly others: readonly string[];
}

type Words = ReadonlyMap<string, Word>;

const options = '--config --data --help --json --dry-run --verbose --version';
const scripts: Readonly<Record<string, (words: Words) => string>> = { bash, zsh, fish };

/**
 * A script that completes the commands.
 *
 * @throws usage error for an unknown shell
 */
export function completionScript(shell: string, commands: readonly CompletedCommand[]): string {
  const script = Object.hasOwn(scripts, shell) ? scripts[shell] : undefined;
  if (script === undefined) throw usageError(Object.keys(scripts).map((name) => `postern completion ${name}`));
  const words = new Map<string, { readonly summary: string; readonly options: string; readonly others: string[] }>();
  for (const command of commands) {
    const [first = '', second] = command.words.split(' ');
    const word = words.get(first) ?? {
      summary: command.summary,
      options: (command.options ?? []).join(' '),
      others: [],
    };
    if (second !== undefined) word.others.push(second);
    words.set(first, word);
  }
  return script(words);
}

const cases = (words: Words, line: (first: string, others: string) => string): string =>
  [...words].flatMap(([first, { others }]) => (others.length === 0 ? [] : line(first, others.join(' ')))).join('\n');

/** For the commands that have options of their own. */
const ownOptions = (words: Words, line: (first: string, options: string) => string): string =>
  [...words].flatMap(([first, { options: own }]) => (own === '' ? [] : line(first, own))).join('\n');

function bash(words: Words): string {
  return `_postern() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" words=""
  case "$COMP_CWORD:\${COMP_WORDS[1]}" in
    1:*) words="${[...words.keys()].join(' ')}" ;;
${cases(words, (first, others) => `    2:${first}) words="${others}" ;;`)}
  esac
  case "$cur" in -*) words="${options}"
    case "\${COMP_WORDS[1]}" in
${ownOptions(words, (first, own) => `      ${first}) words="$words ${own}" ;;`)}
      *) ;;
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _postern postern`;
}

function zsh(words: Words): string {
  return `#compdef postern
_postern() {
  case "$PREFIX" in -*)
    compadd -- ${options}
    case "$words[2]" in
${ownOptions(words, (first, own) => `      ${first}) compadd -- ${own} ;;`)}
      *) ;;
    esac
    return ;;
  esac
  case "$CURRENT:$words[2]" in
    2:*) compadd -- ${[...words.keys()].join(' ')} ;;
${cases(words, (first, others) => `    3:${first}) compadd -- ${others} ;;`)}
    *) _files ;;
  esac
}
compdef _postern postern`;
}

function fish(words: Words): string {
  const quoted = (text: string): string => `'${text.replaceAll(/['\\]/g, '\\$&')}'`;
  const firsts = [...words].map(
    ([first, { summary }]) => `complete -c postern -f -n __fish_use_subcommand -a ${first} -d ${quoted(summary)}`,
  );
  const seconds = cases(
    words,
    (first, others) => `complete -c postern -f -n '__fish_seen_subcommand_from ${first}' -a '${others}'`,
  );
  const longs = options
    .split(' ')
    .map((option) => `complete -c postern -l ${option.slice(2)}`)
    .join('\n');
  const own = ownOptions(words, (first, all) =>
    all
      .split(' ')
      .map((option) => `complete -c postern -n '__fish_seen_subcommand_from ${first}' -l ${option.slice(2)}`)
      .join('\n'),
  );
  return [...firsts, seconds, longs, own].filter((part) => part !== '').join('\n');
}
