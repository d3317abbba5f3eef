import type { Terminal } from './command.js';
import { hashPassword } from '../auth/password.js';
import { passwordComplaint } from '../auth/password-rule.js';
import { startError } from './start-error.js';
import { ProcessTerminal } from './terminal.js';

/** A person types it twice; from a pipe it is one line. Empty for none. */
export async function askNewPassword(terminal: Terminal): Promise<string> {
  const password = await terminal.askSecret('Password: ');
  if (terminal.interactive && password !== '' && (await terminal.askSecret('The same again: ')) !== password) {
    throw startError('The two passwords differ: nothing was changed.');
  }
  return password;
}

/** `postern password hash`: a `passwordHash` for an account of the configuration. */
export async function newPasswordHash(): Promise<string> {
  const terminal = new ProcessTerminal();
  try {
    const password = await askNewPassword(terminal);
    if (password === '') throw startError('No password was given.');
    const complaint = passwordComplaint(password, '');
    if (complaint !== undefined) throw startError(complaint);
    return await hashPassword(password);
  } finally {
    terminal.close();
  }
}
