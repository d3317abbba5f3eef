import { parseAddress } from '../../../core/mime/address.js';
import { scanHeader } from '../../../core/mime/header.js';
import type { Assertion } from './assertions.js';
import { type CaseDefinition, readReversePath } from './definition.js';
import { at } from './invalid-place.js';
import { type CaseTransaction, transactionsOf, type TransactionGround } from './transactions.js';
import type { KeptUpload } from './upload-shelf.js';
import { variablesOf, withVariables } from './variables.js';

/** What a caller wants sent, a case or one raw message, read and checked. */
export interface OutgoingRequest {
  readonly where: Pick<CaseDefinition, 'route' | 'mx' | 'port' | 'protocol' | 'tls' | 'verify' | 'auth' | 'ehlo'>;
  readonly how: Pick<CaseDefinition, 'timeout' | 'retry' | 'delay'>;
  readonly assertions: readonly Assertion[];
  /** Of all recipients. */
  readonly domains: readonly string[];
  /** Begins anew whenever it is asked for. */
  transactions(): AsyncIterable<CaseTransaction> | Iterable<CaseTransaction>;
}

/** @throws Problem `invalid` with the place of each address or variable that is wrong */
export function requestOfCase(definition: CaseDefinition, ground: TransactionGround): OutgoingRequest {
  const domains = definition.envelopes.flatMap((envelope, index) => domainsOf(envelope, index, definition, ground));
  return {
    where: definition,
    how: definition,
    assertions: assertionsOf(definition),
    domains,
    transactions: () => transactionsOf(definition, ground),
  };
}

/** Before anything is dialled, every envelope has been tried once with its variables. */
function domainsOf(
  envelope: CaseDefinition['envelopes'][number],
  index: number,
  definition: CaseDefinition,
  { now }: TransactionGround,
): readonly string[] {
  const place = `/envelopes/${index}`;
  const expanded = at(place, () => withVariables(envelope, variablesOf(definition, now())));
  at(`${place}/mail`, () => readReversePath(expanded.mail));
  return expanded.rcpt.map((written, position) => at(`${place}/rcpt/${position}`, () => parseAddress(written).domain));
}

function assertionsOf({ assertions, envelopes }: CaseDefinition): readonly Assertion[] {
  const located = (prefix: string, { protocol }: CaseDefinition['assertions']): readonly Assertion[] =>
    protocol.map(([verb, expected], index) => ({
      verb,
      expected,
      pointer: `${prefix}/assertions/protocol/${index}/1`,
    }));
  return [
    ...located('', assertions),
    ...envelopes.flatMap((envelope, index) => located(`/envelopes/${index}`, envelope.assertions)),
  ];
}

/** Beside a raw message. */
export interface MessageQuery {
  readonly mail: string;
  readonly rcpt: readonly string[];
  readonly route?: string | undefined;
  readonly mx?: readonly string[] | undefined;
  readonly port?: number | undefined;
  readonly protocol?: 'smtp' | 'lmtp' | undefined;
}

const usual = { timeout: 30, retry: 0, delay: 0 };

/** @throws Problem `invalid` */
export function requestOfMessage({ mail, rcpt, ...where }: MessageQuery, upload: KeptUpload): OutgoingRequest {
  const reversePath = at('mail', () => readReversePath(mail));
  const recipients = rcpt.map((written) => at('rcpt', () => parseAddress(written)));
  const transaction: CaseTransaction = {
    mail: reversePath,
    message: {
      sender: { address: reversePath },
      recipients: recipients.map(({ address }) => ({ address })),
      content: { source: () => upload.open(), size: upload.size },
    },
    messageId: scanHeader(upload.head).first('message-id') ?? null,
  };
  return {
    where: Object.fromEntries(Object.entries(where).filter(([, value]) => value !== undefined)),
    how: usual,
    assertions: [],
    domains: recipients.map(({ domain }) => domain),
    transactions: () => [transaction],
  };
}
