/** Name and password of an `Authorization: Basic` field (RFC 7617). */
export interface Credentials {
  readonly username: string;
  readonly password: string;
}

const longest = 4096;
const utf8 = new TextDecoder('utf-8', { fatal: true });

/** `none` when the field is absent, `malformed` when it cannot be read: both are answered alike. */
export function parseBasic(field: string | undefined): Credentials | 'none' | 'malformed' {
  if (field === undefined || field === '') return 'none';
  const token = /^basic +([A-Za-z0-9+/]+={0,2}) *$/i.exec(field)?.[1];
  if (field.length > longest || token === undefined) return 'malformed';
  const text = decode(token);
  const colon = text?.indexOf(':') ?? -1;
  if (text === undefined || colon < 1 || /\p{Cc}/u.test(text)) return 'malformed';
  return { username: text.slice(0, colon), password: text.slice(colon + 1) };
}

function decode(token: string): string | undefined {
  try {
    return utf8.decode(Buffer.from(token, 'base64'));
  } catch {
    return undefined;
  }
}
