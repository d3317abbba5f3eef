import { z } from 'zod';
import { uniqueId } from '../../../core/disk/id.js';
import { parseAddress } from '../../../core/mime/address.js';
import { mailDate } from '../../../core/mime/header.js';
import { type InvalidPlace, isProblem, problem } from '../../../core/problem.js';

/** A case: one SMTP or LMTP session as data. Everything is bounded, since it comes from a caller. */

const maxEnvelopes = 100;
const maxRecipients = 1000;
const maxText = 4 * 1024 * 1024;
/** Messages of one session, including repetitions. */
const maxMessages = 1000;

const oneLine = (most: number) =>
  z
    .string()
    .max(most)
    .refine((text) => !/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(text), 'must be one line without control characters');
const body = z
  .string()
  .max(maxText)
  .refine((text) => !/[\0\p{Cs}]/u.test(text), 'must not hold NUL');
const port = z.int().min(1).max(65_535);

/** Parameters of MAIL and RCPT as they are written: `SIZE=100`, `BODY=8BITMIME` (RFC 5321 §4.1.2 `esmtp-param`). */
const Parameter = z
  .string()
  .max(500)
  .regex(/^[A-Za-z0-9][A-Za-z0-9-]*(=[!-<>-~]+)?$/, 'must be KEY or KEY=value without blanks');

const HeaderName = z.string().regex(/^[!-9;-~]{1,76}$/, 'must be the name of a header field');
/** Fields for the encoding of the body, which the server sets. */
const ownFields = /^(mime-version|content-.*)$/i;

const Attachment = z.strictObject({
  filename: oneLine(255).min(1),
  contentType: z
    .string()
    .regex(/^[\w!#$&^.+-]+\/[\w!#$&^.+-]+$/, 'must be a media type')
    .default('application/octet-stream'),
  content: z.string().max(maxText),
  encoding: z.enum(['utf8', 'base64']).default('utf8').describe('How `content` is written.'),
});

const Verb = z
  .string()
  .regex(/^[A-Za-z]{4,8}$|^[.]$/, 'must be a verb such as RCPT, CONNECT for the greeting, or . for the last reply')
  .transform((verb) => verb.toUpperCase());

const Expected = z.string().max(1000).describe('A pattern in RE2 syntax.');
/** Total of all envelopes, checked before any is compiled. */
const maxAssertions = 100;
const maxPatternLength = 10_000;

const Assertions = z
  .strictObject({
    protocol: z
      .array(z.tuple([Verb, Expected]))
      .max(maxAssertions)
      .default([]),
  })
  .describe('Each pair holds when some reply to the verb has the pattern in it.');

const Content = {
  headers: z
    .record(HeaderName, oneLine(10_000))
    .refine(
      (headers) => !Object.keys(headers).some((name) => ownFields.test(name)),
      'MIME-Version and Content-… are set by the server',
    )
    .optional()
    .describe('Further header fields. From is the sender and To the recipients unless they stand here.'),
  subject: oneLine(2000).optional(),
  message: body.optional().describe('The same as text.'),
  text: body.optional().describe('Plain text.'),
  html: body.optional().describe('HTML, as an alternative to the text.'),
  attachments: z.array(Attachment).max(50).optional(),
};

export const CaseEnvelope = z
  .strictObject({
    mail: oneLine(1024).describe('Reverse-path; empty or <> is the null reverse-path.'),
    rcpt: z.array(oneLine(1024)).min(1).max(maxRecipients),
    ...Content,
    eml: body.optional().describe('A whole message instead: header, empty line, body.'),
    file: oneLine(500).optional().describe('Name of a file in the configured case folder that holds the message.'),
    params: z
      .strictObject({ MAIL: z.array(Parameter).max(10).default([]), RCPT: z.array(Parameter).max(10).default([]) })
      .prefault({}),
    repeat: z.int().min(1).max(maxMessages).default(1).describe('Sent so many times.'),
    assertions: Assertions.prefault({}),
  })
  .superRefine((envelope, context) => {
    const composed = Object.keys(Content).some((key) => envelope[key as keyof typeof Content] !== undefined);
    const ways = [composed, envelope.eml !== undefined, envelope.file !== undefined].filter(Boolean).length;
    if (ways > 1)
      context.addIssue({ code: 'custom', message: 'takes one of: fields such as subject and text, eml, file' });
    if (envelope.text !== undefined && envelope.message !== undefined)
      context.addIssue({ code: 'custom', path: ['message'], message: 'is the same as text: give one of them' });
  });
export type CaseEnvelope = z.output<typeof CaseEnvelope>;

const variableName = /^[A-Za-z][A-Za-z0-9_]{0,63}$/;

export const CaseDefinition = z
  .strictObject({
    route: z
      .string()
      .max(63)
      .optional()
      .describe(
        'Name of a configured route; when absent that of the domain of the recipients, the default route, or MX.',
      ),
    mx: z
      .array(oneLine(255))
      .min(1)
      .max(10)
      .optional()
      .describe('Hosts to try in this order; they must be allowed by the targets of the configuration.'),
    port: port.optional().describe('25, or 24 for LMTP, when absent.'),
    protocol: z.enum(['smtp', 'lmtp']).optional(),
    tls: z.enum(['never', 'opportunistic', 'require', 'implicit']).optional(),
    verify: z.boolean().optional().describe('Check the certificate of the server.'),
    auth: z.strictObject({ user: oneLine(255).min(1), pass: z.string().min(1).max(1024) }).optional(),
    ehlo: z
      .string()
      .regex(/^[A-Za-z0-9:.[\]_-]{1,255}$/, 'must be a domain or an address literal')
      .optional(),
    timeout: z.int().min(1).max(300).default(30).describe('Seconds for each step.'),
    retry: z.int().min(0).max(5).default(0).describe('Further attempts to get a connection.'),
    delay: z.int().min(0).max(60).default(0).describe('Seconds between them.'),
    $: z
      .record(z.string().regex(variableName, 'must be a word'), z.union([oneLine(1000), z.number()]))
      .default({})
      .describe('Variables, used as {$name} beside {$uid}, {$date} and {$yymd}.'),
    assertions: Assertions.prefault({}),
    envelopes: z.array(CaseEnvelope).min(1).max(maxEnvelopes),
  })
  .superRefine(({ envelopes, ...where }, context) => {
    const patterns = [where, ...envelopes]
      .flatMap(({ assertions }) => assertions.protocol)
      .map(([, pattern]) => pattern);
    if (patterns.length > maxAssertions || patterns.join('').length > maxPatternLength)
      context.addIssue({
        code: 'custom',
        path: ['assertions'],
        message: `must not be more than ${maxAssertions} in all, with ${maxPatternLength} characters`,
      });
    const { route, mx, port: given } = where;
    const said = ['mx', 'port', 'auth', 'tls', 'verify', 'protocol'] as const;
    if (route !== undefined && said.some((key) => where[key] !== undefined))
      context.addIssue({
        code: 'custom',
        path: ['route'],
        message: `says everything about the servers: leave ${said.join(', ')} out`,
      });
    if (mx === undefined && given !== undefined)
      context.addIssue({ code: 'custom', path: ['port'], message: 'needs mx' });
    const messages = envelopes.reduce((sum, { repeat }) => sum + repeat, 0);
    if (messages > maxMessages)
      context.addIssue({
        code: 'custom',
        path: ['envelopes'],
        message: `must not be more than ${maxMessages} messages in all`,
      });
  });
export type CaseDefinition = z.output<typeof CaseDefinition>;

/** Null for the null reverse-path. @throws Problem `invalid` */
export function readReversePath(text: string): string | null {
  return text === '' || text === '<>' ? null : parseAddress(text).address;
}

const longest = 8 * 1024 * 1024;
const placeholder = /\{\$([A-Za-z][A-Za-z0-9_]{0,63})\}/g;

/** Names and values; replaced once, not recursively. */
export type Variables = ReadonlyMap<string, string>;

/** Variables of the case and of the server; `uid` is new for each message. */
export function variablesOf({ $ }: Pick<CaseDefinition, '$'>, now: Date, uid = uniqueId()): Variables {
  const given = Object.entries($).map(([name, value]) => [name, String(value)] as const);
  const day = now.toISOString().slice(0, 10).replaceAll('-', '');
  return new Map([['uid', uid], ['date', mailDate(now)], ['yymd', day], ...given]);
}

/**
 * The envelope with `{$name}` replaced in all its texts, and validated again.
 * @throws Problem `invalid` for an unknown name, and for a value that is invalid in its place
 */
export function withVariables(envelope: CaseEnvelope, variables: Variables): CaseEnvelope {
  const read = CaseEnvelope.safeParse(expand(envelope, variables, { left: longest }));
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw problem('invalid', `With its variables, ${issue?.path.join('.') ?? 'the envelope'} ${issue?.message ?? ''}.`);
}

function expand(value: unknown, variables: Variables, budget: { left: number }): unknown {
  if (typeof value === 'string') return replaced(value, variables, budget);
  if (Array.isArray(value)) return value.map((element) => expand(element, variables, budget));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, element]) => [key, expand(element, variables, budget)]));
}

function replaced(text: string, variables: Variables, budget: { left: number }): string {
  return text.replace(placeholder, (written, name: string) => {
    const value = variables.get(name);
    if (value === undefined) throw problem('invalid', `There is no variable ${written}.`);
    budget.left -= value.length;
    if (budget.left < 0) throw problem('invalid', 'The variables make the case too large.');
    return value;
  });
}

/** Runs `read`. @throws Problem `invalid` with `pointer` as the position */
export function at<T>(pointer: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!isProblem(error)) throw error;
    throw problem('invalid', { detail: `${pointer}: ${error.message}`, errors: [{ pointer, message: error.message }] });
  }
}

/** The errors of all reads. */
export function wrongPlaces(reads: readonly (() => unknown)[]): readonly InvalidPlace[] {
  return reads.flatMap((read) => {
    try {
      read();
      return [];
    } catch (error) {
      if (!isProblem(error) || error.problem !== 'invalid') throw error;
      return error.details.errors ?? [];
    }
  });
}
