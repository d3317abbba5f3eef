/** Replaces a secret in logs, pages and responses. */
export const MASK = '••••';

/** Limit of nesting; deeper values are cut. */
const MAX_DEPTH = 12;

const SECRET_WORDS = new Set(
  (
    'authorization cookie credential credentials jwt key keys pass passcode passphrase passwd password passwords pin ' +
    'pwd secret secrets token tokens apikey accesskey privatekey secretkey'
  ).split(' '),
);
/** Such a name describes a secret and does not hold one: `tokenCount`, `passwordMaxLength`, `publicKey`. */
const HARMLESS =
  /(?:^|[^a-z])(?:(?:public|max|min) keys?|(?:count|length|limit|size|bits|ms|seconds|attempts|failures|policy))$/;

/**
 * Whether a field of that name holds a secret: `smtpPassword`, `AWS_KEY_ID`, `x-api-key`,
 * `http.accounts.0.passwordHash`.
 */
export function isSecretName(name: string): boolean {
  const known = judged.get(name);
  if (known !== undefined) return known;
  const secret = judge(name);
  if (judged.size >= MAX_JUDGED) judged.clear();
  if (name.length <= 100) judged.set(name, secret);
  return secret;
}

/** Results by name: the same few names come again and again. */
const judged = new Map<string, boolean>();
const MAX_JUDGED = 2000;

function judge(name: string): boolean {
  const words = name
    .slice(-200)
    .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== '');
  return words.some((word) => SECRET_WORDS.has(word)) && !HARMLESS.test(words.join(' '));
}

type Replacement = (found: string, ...groups: readonly string[]) => string;

/** Every quantifier is bounded or followed by what it cannot match, so that hostile text costs linear time. */
const patterns: readonly (readonly [RegExp, Replacement])[] = [
  [/-----BEGIN ([A-Z0-9 ]{1,40})-----[^]*?(?:-----END [A-Z0-9 ]{1,40}-----|$)/g, (_, label) => `[${label} ${MASK}]`],
  [/:\/\/((?:(?!:\/\/)[^\s"'<>]){1,2048})/g, (_, rest) => `://${withoutUserinfo(rest)}`],
  [/\bAUTH\s{1,4}([A-Z0-9-]{3,20})\s{1,4}[^\s"'\\]{2,4096}/gi, (_, mechanism) => `AUTH ${mechanism} ${MASK}`],
  [
    /\b(Basic)\s{1,4}([A-Za-z0-9+/_-]{4,4096}={0,2})/gi,
    (found, scheme, token) => (isBasic(token) ? `${scheme} ${MASK}` : found),
  ],
  [/\b(Bearer)\s{1,4}[A-Za-z0-9+/=._~-]{6,8192}/gi, (_, scheme) => `${scheme} ${MASK}`],
  [/\beyJ[\w-]{8,8192}\.[\w-]{4,8192}(?:\.[\w-]{0,8192}){0,3}/g, () => MASK],
  [/\bscrypt\$[^\s"'\\]{4,512}/g, () => `scrypt$${MASK}`],
  [/\$(?:2[abxy]|argon2(?:id|i|d)|[156y])\$[^\s"'\\]{8,512}/g, () => MASK],
  [
    /\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|gh[opsur]_\w{20,255}|github_pat_\w{20,255}|xox[abprs]-[\w-]{10,255}|sk-[\w-]{20,255}|glpat-[\w-]{16,64})\b/g,
    () => MASK,
  ],
  [
    /((?:password|passwd|passphrase|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|cookie|authorization|credential|(?<![a-z])(?:pass|pin))s?(?:[-_]?hash)?\\{0,3}["']?\s{0,3}[=:]\s{0,3}\[?\s{0,3})(?:\\{0,3}"[^"]{0,512}"?|'[^']{0,512}'?|[^\s"'&,;}\\]{1,512})/gi,
    (_, name) => `${name}${MASK}`,
  ],
];

/** Every secret or its name contains one of these; lower case, as a case-insensitive search is four times slower. */
const hints =
  /-----begin|:\/\/|auth |basic |bearer |eyj|scrypt\$|\$2|\$argon|\$[156]\$|akia|asia|gh[posur]_|github_pat|xox|sk-|glpat|pass|pwd|secret|token|key|cookie|authorization|credential|jwt|pin/;

/** Whether a text may hold a secret, in a name or a value. Cheap; errs towards yes. */
export const mayHoldSecret = (text: string): boolean => hints.test(text.toLowerCase());

/** Masks the secrets that are recognized by their form. */
export function redactText(text: string): string {
  if (!mayHoldSecret(text)) return text;
  return patterns.reduce((rest, [pattern, replacement]) => rest.replace(pattern, replacement), text);
}

/**
 * A copy without secrets: fields by name, text by form. Supports JSON values, and errors by their message; other values
 * become text.
 */
export function redact(value: unknown): unknown {
  return visit(value, 0);
}

function visit(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return redactText(value);
  if (typeof value !== 'object' || value === null) return typeof value === 'function' ? '[function]' : value;
  if (depth >= MAX_DEPTH) return '[too deep]';
  if (Array.isArray(value)) return value.map((element) => visit(element, depth + 1));
  if (value instanceof Date) return value;
  if (value instanceof Error) return { type: value.name, message: redactText(value.message) };
  return fieldsOf(value, depth);
}

/** `redact` for a record. */
export const redactFields = (fields: object): Readonly<Record<string, unknown>> => fieldsOf(fields, 0);

function fieldsOf(fields: object, depth: number): Record<string, unknown> {
  const copy: [string, unknown][] = Object.entries(fields).map(([name, below]) => [
    redactText(name),
    isSecretName(name) ? masked(below) : visit(below, depth + 1),
  ]);
  return Object.fromEntries(copy);
}

/** Booleans and null are not secret; all other values below a secret name are. */
function masked(value: unknown): unknown {
  return typeof value === 'boolean' || value === null || value === undefined || value === '' ? value : MASK;
}

/**
 * The text after `://` without user name and password (RFC 3986 §3.2.1). The password may hold unescaped `/`, `?`, `#`
 * and `@`; `host:port/` is not taken for one.
 */
function withoutUserinfo(rest: string): string {
  const slash = rest.indexOf('/');
  const inAuthority = rest.lastIndexOf('@', slash === -1 ? rest.length : slash);
  const careless = /^[^/:@[]{1,128}:(?!\d{1,5}\/)/.test(rest) ? rest.lastIndexOf('@') : -1;
  const at = Math.max(inAuthority, careless);
  return at === -1 ? rest : `${MASK}${rest.slice(at)}`;
}

function isBasic(token: string): boolean {
  return Buffer.from(token, 'base64').includes(':');
}
