/** Modified UTF-7 (RFC 3501 §5.1.3): the encoding of folder names on disk, for IMAP servers. */
export function encodeModifiedUtf7(text: string): string {
  return text.replace(/&|[^\x20-\x7e]+/g, (run) => (run === '&' ? '&-' : `&${encodeRun(run)}-`));
}

function encodeRun(run: string): string {
  const bytes = Buffer.from(run, 'utf16le').swap16();
  return bytes.toString('base64').replace(/=+$/, '').replaceAll('/', ',');
}

/** The text, or undefined for invalid modified UTF-7 and for a non-canonical encoding. */
export function decodeModifiedUtf7(encoded: string): string | undefined {
  if (!/^[\x20-\x7e]*$/.test(encoded)) return undefined;
  const text = encoded.replace(/&([A-Za-z0-9+,]*)-/g, (_, run: string) => (run === '' ? '&' : decodeRun(run)));
  return encodeModifiedUtf7(text) === encoded ? text : undefined;
}

function decodeRun(run: string): string {
  const bytes = Buffer.from(run.replaceAll(',', '/'), 'base64');
  return bytes
    .subarray(0, bytes.length - (bytes.length % 2))
    .swap16()
    .toString('utf16le');
}
