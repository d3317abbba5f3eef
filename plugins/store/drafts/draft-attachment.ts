import { parseParameters, safeFilename } from '../../../core/mime/content-type.js';
import { problem } from '../../../core/problem.js';
import type { AttachmentUpload } from './draft.js';

const token = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,99}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,99}$/;
const charset = /^[\w.:-]{1,40}$/;
const octets = 'application/octet-stream';
const longestName = 200;

/**
 * What an attachment is called and is, by the words of whoever sends it. A name is text to show: of a path the last component. One
 * that would break a header field, or that misleads who reads it, is refused.
 * @throws Problem `invalid`
 */
export function parseAttachmentLabel(
  filename: string,
  contentType: string | undefined,
): Pick<AttachmentUpload, 'filename' | 'contentType'> {
  const name = safeFilename(filename);
  const isWhole = !/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(filename) && filename.length <= longestName;
  if (name === undefined || !isWhole) {
    const message = `must be a name of 1 to ${longestName} characters, without controls and without invisible characters`;
    throw problem('invalid', { detail: `The file name ${message}.`, errors: [{ pointer: 'filename', message }] });
  }
  return { filename: name, contentType: typeOf(contentType) };
}

/** Only leaves can be in base64: a message or multipart goes as bytes (RFC 2046 §5.1, §5.2.1). */
function typeOf(written: string | undefined): string {
  const { value, parameters } = parseParameters(written ?? '');
  if (!token.test(value) || /^(?:multipart|message)\//.test(value)) return octets;
  const named = parameters.get('charset');
  return value.startsWith('text/') && named !== undefined && charset.test(named) ? `${value}; charset=${named}` : value;
}
