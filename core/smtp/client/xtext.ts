/** RFC 3461 §4: what is no printable ASCII, and `+` and `=`, becomes `+` and two hexadecimal digits. */
export function encodeXtext(text: string): string {
  if (/^[!-*,-<>-~]*$/.test(text)) return text;
  let encoded = '';
  for (const byte of Buffer.from(text)) {
    const plain = byte > 0x20 && byte < 0x7f && byte !== 0x2b && byte !== 0x3d;
    encoded += plain ? String.fromCharCode(byte) : `+${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return encoded;
}
