import { isProblem, problem, type Problem, type ProblemName } from '../problem.js';

/**
 * What libraries throw, as a problem. Only 4xx of the body parsers and of Koa are taken over, by their status: their
 * messages may quote the body, so they are neither shown nor logged.
 */
export function asProblem(thrown: unknown): Problem {
  if (isProblem(thrown)) return thrown;
  const name = byStatus.get(statusOf(thrown));
  if (name !== undefined) return problem(name, sentences[name] ?? {});
  return problem('internal', { cause: thrown, detail: 'The server could not do this. Nothing more is known here.' });
}

const byStatus: ReadonlyMap<number | undefined, ProblemName> = new Map<number, ProblemName>([
  [400, 'bad-request'],
  [408, 'timeout'],
  [413, 'too-large'],
  [415, 'unsupported-media-type'],
  // formidable: a transfer encoding that it does not know.
  [501, 'bad-request'],
]);

const sentences: Partial<Record<ProblemName, string>> = {
  'bad-request': 'The body cannot be read.',
  'too-large': 'The body is larger than this endpoint takes.',
};

/** formidable says `httpCode`, http-errors `status`; a connection that broke is the peer's doing. */
function statusOf(thrown: unknown): number | undefined {
  if (typeof thrown !== 'object' || thrown === null) return undefined;
  const { status, statusCode, httpCode, code } = thrown as Readonly<Record<string, unknown>>;
  if (code === 'ECONNABORTED' || code === 'ECONNRESET') return 400;
  return [status, statusCode, httpCode].find((value) => typeof value === 'number');
}
