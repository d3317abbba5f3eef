import { STATUS_CODES } from 'node:http';
import { classOf, type InvalidPlace, type Page, type Problem } from '../problem.js';

/** RFC 9457, with the request id. The error page and the toast are made from it as well, under a title of our own. */
export interface ProblemDocument {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly requestId: string;
  readonly errors?: readonly InvalidPlace[];
  /** Pages that may have been meant. */
  readonly instead?: readonly Page[];
}

export function problemDocument(problem: Problem, requestId: string): ProblemDocument {
  const { title: sentence, http } = classOf(problem);
  const { detail = `${sentence}.`, errors, instead } = problem.details;
  return {
    type: 'about:blank',
    // For this type, the status phrase (RFC 9457 §4.2.1).
    title: STATUS_CODES[http] ?? sentence,
    status: http,
    detail,
    requestId,
    ...(errors === undefined || errors.length === 0 ? {} : { errors }),
    ...(instead === undefined ? {} : { instead }),
  };
}
