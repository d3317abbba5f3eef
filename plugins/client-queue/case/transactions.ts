import { parseAddress } from '../../../core/mime/address.js';
import { scanHeader } from '../../../core/mime/header.js';
import type { OutgoingMessage } from '../../../core/smtp/client/message.js';
import type { CaseFiles } from './case-file.js';
import { messageOf } from './case-message.js';
import { type CaseDefinition, type CaseEnvelope, readReversePath } from './definition.js';
import { variablesOf, withVariables } from './variables.js';

/** One transaction of a session, ready to be sent. */
export interface CaseTransaction {
  /** Null for the null reverse-path. */
  readonly mail: string | null;
  readonly message: OutgoingMessage;
  readonly messageId: string | null;
}

export interface TransactionGround {
  readonly files: CaseFiles;
  readonly hostname: string;
  readonly now: () => Date;
}

/** The transactions of a case in their order, repetitions too. @throws Problem `invalid` */
export async function* transactionsOf(
  definition: CaseDefinition,
  ground: TransactionGround,
): AsyncGenerator<CaseTransaction> {
  for (const envelope of definition.envelopes)
    for (let count = 0; count < envelope.repeat; count += 1) yield await transactionOf(envelope, definition, ground);
}

async function transactionOf(
  envelope: CaseEnvelope,
  definition: CaseDefinition,
  ground: TransactionGround,
): Promise<CaseTransaction> {
  const variables = variablesOf(definition, ground.now());
  const expanded = withVariables(envelope, variables);
  const { params, rcpt } = expanded;
  const mail = readReversePath(expanded.mail);
  const source = await messageOf(expanded, variables, ground);
  const parameters = params.RCPT;
  return {
    mail,
    message: {
      sender: { address: mail, parameters: params.MAIL },
      recipients: rcpt.map((written) => ({ address: parseAddress(written).address, parameters })),
      content: { source },
    },
    messageId: scanHeader(source).first('message-id') ?? null,
  };
}
