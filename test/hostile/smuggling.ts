/** What some servers take for the end of a message, and we do not; none of them holds CRLF.CRLF. */
export const nonEndings: Readonly<Record<string, string>> = {
  'LF.LF': '\n.\n',
  'LF.CRLF': '\n.\r\n',
  'CRLF.LF': '\r\n.\n',
  'CR.CRLF': '\r.\r\n',
  'CR.CR': '\r.\r',
  'CRLF.CR': '\r\n.\r',
  'LF.CR': '\n.\r',
  'LFCR.LFCR': '\n\r.\n\r',
  'NUL CRLF.NUL CRLF': '\0\r\n.\0\r\n',
  'CRLF.NUL CRLF': '\r\n.\0\r\n',
  'CRLF.CRCRLF': '\r\n.\r\r\n',
};

/** The message that would come in behind such an ending. */
export const smuggledTo = (recipient: string): string =>
  `MAIL FROM:<evil@sender.example>\r\nRCPT TO:<${recipient}>\r\nDATA\r\nSubject: evil\r\n\r\nevil`;
