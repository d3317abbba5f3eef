/** Fields and bodies of a request in which a second one could be hidden from whoever reads its length in another way. */
export const smuggling = (
  hidden: string,
): Readonly<Record<string, readonly [headers: readonly string[], body: string]>> => ({
  'CL.TE': [['Content-Length: 5', 'Transfer-Encoding: chunked'], `0\r\n\r\n${hidden}`],
  'TE.CL': [['Transfer-Encoding: chunked', 'Content-Length: 5'], `0\r\n\r\n${hidden}`],
  'two lengths': [['Content-Length: 5', 'Content-Length: 6'], `hello${hidden}`],
  'a signed length': [['Content-Length: +5'], `hello${hidden}`],
  'a list of lengths': [['Content-Length: 5, 5'], `hello${hidden}`],
  'a space before the colon': [['Content-Length : 5'], `hello${hidden}`],
  'chunked and identity': [['Transfer-Encoding: chunked, identity'], `0\r\n\r\n${hidden}`],
  'an unknown coding': [['Transfer-Encoding: xchunked'], `0\r\n\r\n${hidden}`],
  'a vertical tab': [['Transfer-Encoding:\x0bchunked'], `0\r\n\r\n${hidden}`],
  'a folded field': [['Transfer-Encoding:', ' chunked'], `0\r\n\r\n${hidden}`],
  'a bare LF in a chunk extension': [['Transfer-Encoding: chunked'], `5;a\nb\r\nhello\r\n0\r\n\r\n${hidden}`],
  'a bad chunk size': [['Transfer-Encoding: chunked'], `0x5\r\nhello\r\n0\r\n\r\n${hidden}`],
  'a bare LF between fields': [['X: y\nContent-Length: 5'], `hello${hidden}`],
});
