import assert from 'node:assert/strict';
import { SmtpClient } from './smtp-client.js';

/** Sends one message to `recipient` and fails unless each reply is the good one. */
export async function deliver(port: number, message: string, recipient = 'postmaster@localhost'): Promise<void> {
  const client = await SmtpClient.greeted({ port });
  assert.equal((await client.command('MAIL FROM:<anna@example.org>')).code, 250);
  assert.equal((await client.command(`RCPT TO:<${recipient}>`)).code, 250);
  assert.equal((await client.data(message)).code, 250);
  assert.equal((await client.command('QUIT')).code, 221);
  client.close();
}

/** A message of these lines, with CRLF line ends. */
export const lines = (...text: readonly string[]): string => text.map((line) => `${line}\r\n`).join('');
