import { startError } from '../../core/problem.js';

/** What a plugin is called: in its folder, in the configuration, in paths and in code. */
export interface PluginName {
  /** `rate-limit` */
  readonly name: string;
  /** `rateLimit` */
  readonly identifier: string;
  /** `rate_limit` */
  readonly metric: string;
  /** `Rate limit` */
  readonly title: string;
}

const longest = 40;

/** First steps of the paths of the server itself, and names of its plugins: a skeleton of that name would stand in their way. */
export const takenNames: readonly string[] = [
  'assets',
  'audit',
  'cache',
  'client',
  'client-queue',
  'config',
  'docs',
  'drafts',
  'env',
  'favicon',
  'health',
  'heapdump',
  'http',
  'icons',
  'lmtp',
  'logs',
  'macros',
  'metrics',
  'monitoring',
  'openapi',
  'pipeline',
  'properties',
  'proxy',
  'server',
  'smtp',
  'store',
  'system',
  'threads',
  'users',
  'vendor',
];

/** Code would have to quote them. */
const keywords = new Set(
  'await break case catch class const continue debugger default delete do else enum export extends false finally for function if import in instanceof interface let new null package private protected public return static super switch this throw true try typeof var void while with yield'.split(
    ' ',
  ),
);

/** @throws start error with a sentence, for a name that a plugin cannot have */
export function parsePluginName(text: string): PluginName {
  const refuse = (sentence: string) => startError(`${JSON.stringify(text)}: ${sentence}`);
  if (text.length > longest || !/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(text)) {
    throw refuse(
      `a plugin's name is lower-case words and digits with "-" between them, at most ${longest} characters, such as rate-limit.`,
    );
  }
  if (takenNames.includes(text)) throw refuse('Postern itself uses this name: choose another.');
  const words = text.split('-');
  const identifier = words.map((word, index) => (index === 0 ? word : capital(word))).join('');
  if (keywords.has(identifier) || identifier === 'arguments' || identifier === 'eval') {
    throw refuse('this word has a meaning in JavaScript: choose another.');
  }
  return { name: text, identifier, metric: words.join('_'), title: capital(words.join(' ')) };
}

const capital = (word: string): string => word.slice(0, 1).toUpperCase() + word.slice(1);
