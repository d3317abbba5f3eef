import { lockOwner } from '../host/owner-call.js';
import { configure, type StartOptions } from '../main.js';
import { startError, usageError } from '../problem.js';
import { answered, type CommandEnvironment, runningServer } from './command.js';
import { withProgress } from './terminal.js';
import { z } from 'zod';

const Method = z.enum(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']);

/**
 * `postern call METHOD PATH [JSON]`: calls the running server as its owner, and prints the answer.
 *
 * @throws start error with the server's reason when it refuses
 */
export async function callServer(
  args: readonly string[],
  options: StartOptions,
  environment: CommandEnvironment,
): Promise<number> {
  const [verb = '', path = '', text] = args;
  const method = Method.safeParse(verb.toUpperCase()).data;
  if (method === undefined) throw usageError(`There is no method ${verb}: use ${Method.options.join(', ')}.`);
  if (!path.startsWith('/')) throw usageError(`A path begins with /, such as /health/extended: ${path}`);
  const { data } = await configure(options, environment);
  const owner = runningServer(await lockOwner(data));
  const body = text === undefined ? undefined : parsed(text);
  const answer = answered(await withProgress('Waiting for the server', () => owner(method, path, body)), z.unknown());
  if (answer !== undefined) environment.print(typeof answer === 'string' ? answer : JSON.stringify(answer, null, 2));
  return 0;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw startError('The body is not valid JSON.', cause);
  }
}
