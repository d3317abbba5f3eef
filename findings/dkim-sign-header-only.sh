#!/usr/bin/env bash
# mailauth 4.13.3 signs a message that is a header alone with nothing but an empty line, and reports no error.
#
# The body of a message is optional (RFC 5322 section 3.5, RFC 6376 section 3.4.4), so a message may end with its last header
# field. dkimSign() then returns signatures: "\r\n" and errors: []. Who puts that before the message, as is done with
# signatures, sends a message whose header fields are text. With the empty line behind the header it signs.
# Exit status: 0 as described, 1 when that has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{ "type": "module" }' >package.json
npm install --silent --no-audit --no-fund mailauth@4.13.3
cat >try.js <<'END'
import { generateKeyPairSync } from 'node:crypto';
import { dkimSign } from 'mailauth/lib/dkim/sign.js';

const privateKey = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ type: 'pkcs8', format: 'pem' });
const key = { signingDomain: 'a.example', selector: 's', privateKey };
const sign = (text) => dkimSign(Buffer.from(text), { ...key, canonicalization: 'relaxed/relaxed', signatureData: [key] });

const header = 'From: Ann <ann@a.example>\r\nSubject: Only a header\r\n';
const alone = await sign(header);
const ended = await sign(`${header}\r\n`);
console.log('header alone:', JSON.stringify(alone.signatures), JSON.stringify(alone.errors));
console.log('with an empty line:', JSON.stringify(ended.signatures.slice(0, 14)));
const isSeen = alone.signatures === '\r\n' && alone.errors.length === 0 && ended.signatures.startsWith('DKIM-Signature');
process.exit(isSeen ? 0 : 1);
END
node try.js
