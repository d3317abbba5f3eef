#!/usr/bin/env bash
# mailauth 4.13.3 refuses a correct DKIM signature of a message with the byte A0 in a signed header field.
#
# RFC 6376 section 3.4.2 reduces runs of WSP, which is blank and tab, to one blank. A raw UTF-8 field (RFC 6532) with the
# letter "à" has the bytes C3 A0. mailauth decodes the field as latin1 and replaces \s, to which U+00A0 belongs, so its
# hash is another one than that of other signers. nodemailer 10.6.0 signs the message; mailauth verifies it: "pass" with
# "á" (C3 A1), "fail" with "à". What mailauth signs itself it verifies, and others would refuse.
# Exit status: 0 as described, 1 when that has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{ "type": "module" }' >package.json
npm install --silent --no-audit --no-fund mailauth@4.13.3 nodemailer@10.6.0
cat >try.js <<'END'
import { generateKeyPairSync } from 'node:crypto';
import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
import DKIM from 'nodemailer/lib/dkim/index.js';

const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const key = privateKey.export({ type: 'pkcs8', format: 'pem' });
const record = `v=DKIM1; k=rsa; p=${publicKey.export({ type: 'spki', format: 'der' }).toString('base64')}`;
const resolver = async () => [[record]];

async function verified(subject) {
  const message = `From: Ann <ann@a.example>\r\nTo: ben@b.example\r\nSubject: ${subject}\r\n\r\nHello\r\n`;
  const signer = new DKIM({ domainName: 'a.example', keySelector: 's', privateKey: key });
  const chunks = [];
  for await (const chunk of signer.sign(message)) chunks.push(Buffer.from(chunk));
  const { results } = await dkimVerify(Buffer.concat(chunks), { resolver });
  return results[0].status.result;
}

const seen = [await verified('Voila'), await verified('Voilá'), await verified('Voilà')];
console.log(`mailauth 4.13.3 says: a ${seen[0]}, á ${seen[1]}, à ${seen[2]}`);
process.exit(seen.join() === 'pass,pass,fail' ? 0 : 1);
END
node try.js
