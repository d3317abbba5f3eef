/** Why a question has no answer: the name does not exist, it has no such record, or nobody who knows could be asked. */
export type DnsFailureKind = 'nxdomain' | 'nodata' | 'servfail' | 'timeout' | 'aborted';

export interface DnsFailure extends Error {
  readonly postern: 'dns-failure';
  readonly kind: DnsFailureKind;
  readonly name: string;
}

export function dnsFailure(kind: DnsFailureKind, question: string, cause?: unknown): DnsFailure {
  const error = new Error(`${kind} for ${question}`, cause === undefined ? undefined : { cause });
  return Object.assign(error, { name: question, postern: 'dns-failure', kind } as const);
}

export function isDnsFailure(value: unknown): value is DnsFailure {
  return value instanceof Error && (value as Partial<DnsFailure>).postern === 'dns-failure';
}
