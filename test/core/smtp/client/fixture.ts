import type { CallOptions, RemoteServer } from '../../../../core/smtp/client/remote-server.js';
import { isClientFailure, type ClientFailure } from '../../../../core/smtp/client/failure.js';
import type { MessageResult, OutgoingMessage } from '../../../../core/smtp/client/message.js';
import { openSession } from '../../../../core/smtp/client/opening.js';
import type { ClientSession } from '../../../../core/smtp/client/session.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import type { SmtpSink } from '../../../support/smtp-sink.js';

export const text = 'Subject: A test\r\n\r\nHello\r\n';

export function destinationOf(sink: { readonly port: number }, more: Partial<RemoteServer> = {}): RemoteServer {
  const usual = { protocol: 'smtp', tls: { mode: 'never' }, helloName: 'client.example' } as const;
  return { address: '127.0.0.1', port: sink.port, ...usual, ...more };
}

/** Closed when the test ends. */
export async function open(
  test: Ending,
  sink: SmtpSink,
  more: Partial<RemoteServer> = {},
  options: CallOptions = {},
): Promise<ClientSession> {
  const session = await openSession(destinationOf(sink, more), options);
  atEnd(test, () => session.close());
  return session;
}

export function message(more: Partial<OutgoingMessage> & { readonly to?: readonly string[] } = {}): OutgoingMessage {
  const { to = ['ben@example.com'], ...rest } = more;
  return {
    sender: { address: 'anna@example.org' },
    recipients: to.map((address) => ({ address })),
    content: { source: Buffer.from(text) },
    ...rest,
  };
}

/** `delivered`, or `kind step code status permanent|temporary`, for each recipient. */
export function outcomes(result: MessageResult): readonly string[] {
  return result.recipients.map((one) => (one.outcome === 'delivered' ? 'delivered' : described(one.failure)));
}

export function described({ kind, step, code, status, permanent, afterDot }: ClientFailure): string {
  return `${kind} ${step} ${code} ${status} ${permanent ? 'permanent' : 'temporary'}${afterDot ? ' after the dot' : ''}`;
}

/** What the promise is rejected with; fails when that is no `ClientFailure`. */
export async function failureOf(promise: Promise<unknown>): Promise<ClientFailure> {
  const failure = await promise.then(
    () => new Error('it was fulfilled'),
    (error: unknown) => error,
  );
  if (!isClientFailure(failure)) throw failure;
  return failure;
}
