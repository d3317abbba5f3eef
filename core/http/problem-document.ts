import { classOf, type InvalidPlace, type Page, type Problem } from '../problem.js';

/** RFC 9457, with the request id. The JSON answer, the error page and the toast are all made from it. */
export interface ProblemDocument {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail?: string;
  readonly requestId: string;
  readonly errors?: readonly InvalidPlace[];
  /** Pages that may have been meant. */
  readonly instead?: readonly Page[];
}

export function problemDocument(problem: Problem, requestId: string): ProblemDocument {
  const { title, http } = classOf(problem);
  const { detail, errors, instead } = problem.details;
  return {
    type: 'about:blank',
    title,
    status: http,
    ...(detail === undefined ? {} : { detail }),
    requestId,
    ...(errors === undefined || errors.length === 0 ? {} : { errors }),
    ...(instead === undefined ? {} : { instead }),
  };
}
