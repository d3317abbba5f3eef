import type { ClientAnswer } from './client-answer.js';
import type { SmtpTestSession } from './smtp-session.js';

/** Says the lines of the script one after the other, and ends the session. Lines that come when it is over are not said. */
export async function runScript(session: SmtpTestSession, script: string): Promise<readonly ClientAnswer[]> {
  const answers = [await session.greeting];
  const lines = linesOf(script);
  for (let line = lines.shift(); line !== undefined && !session.ended; line = lines.shift()) {
    const answer = await session.send(line).catch(unlessEnded(session));
    if (answer === undefined) break;
    answers.push(answer);
    if (answer.code === 354) answers.push(await session.sendMessage(messageIn(lines)));
  }
  await session.close();
  return answers;
}

/** The server may end the session while the next line is on its way. */
const unlessEnded =
  (session: SmtpTestSession) =>
  (error: unknown): undefined => {
    if (!session.ended) throw error;
  };

/** Blanks in front of all lines are the indentation of the test, and empty lines at both ends its layout. */
function linesOf(script: string): string[] {
  const lines = script.replace(/^(?:[ \t]*\r?\n)+|\s+$/g, '').split(/\r?\n/);
  const indent = /^[ \t]*/.exec(lines[0] ?? '')?.[0] ?? '';
  return lines.map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line.trimStart()));
}

/** The lines up to the lone dot, with the dots of other lines as they should arrive. */
function messageIn(lines: string[]): string {
  const end = lines.indexOf('.');
  if (end < 0) throw new Error('The script has no line with a lone dot behind DATA.');
  const text = lines.splice(0, end + 1).slice(0, -1);
  return text.map((line) => `${line}\r\n`).join('');
}
