import { z } from 'zod';
import type { OwnerAnswer, OwnerCall } from '../../core/cli/command.js';
import { startError } from '../../core/problem.js';
import type { NewUser, Roster, UserChange, UserDetails } from './roster.js';
import { UserAnswer } from './user-schema.js';

const ListAnswer = z.object({ details: z.array(UserAnswer) });
const ProblemAnswer = z.object({ title: z.string().optional(), detail: z.string().optional() });

/** The roster of a running server, reached over HTTP. What it refuses is thrown as a sentence. */
export class RemoteRoster implements Roster {
  readonly #call: OwnerCall;

  constructor(call: OwnerCall) {
    this.#call = call;
  }

  async list(): Promise<readonly UserDetails[]> {
    return answered(await this.#call('GET', '/users'), ListAnswer).details;
  }

  async add(user: NewUser): Promise<UserDetails> {
    return answered(await this.#call('POST', '/users', user), UserAnswer);
  }

  async change(username: string, change: UserChange): Promise<UserDetails> {
    return answered(await this.#call('PATCH', pathOf(username), change), UserAnswer);
  }

  async remove(username: string): Promise<void> {
    answered(await this.#call('DELETE', pathOf(username)), z.unknown());
  }
}

const pathOf = (username: string): string => `/users/${encodeURIComponent(username)}`;

function answered<T>({ status, body }: OwnerAnswer, schema: z.ZodType<T>): T {
  if (status >= 400) {
    const told = ProblemAnswer.safeParse(body).data;
    throw startError(told?.detail ?? told?.title ?? `The running server refused this with status ${status}.`);
  }
  const parsed = schema.safeParse(body);
  if (!parsed.success)
    throw startError('The running server gave an answer that cannot be understood: is it another version?');
  return parsed.data;
}
