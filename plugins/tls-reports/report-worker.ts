import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
import { decodedSize, decodeTransfer } from '../../core/mime/decode.js';
import { type Part, readStructure } from '../../core/mime/structure.js';
import { answerJobs } from '../../core/worker-thread.js';
import { readReport } from './report.js';
import { maySignFor, type ReportJob, type ReportResult, type SigningKeys } from './report-job.js';

const types = ['application/tlsrpt+gzip', 'application/tlsrpt+json'];

/** Of the report before it is unpacked. */
const maxPackedBytes = 1024 * 1024;

async function readReportMail({ bytes, author, keys, domains, maxReported }: ReportJob): Promise<ReportResult> {
  const mail = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  const part = readStructure(mail).parts.find((one) => isReport(mail, one));
  if (part === undefined) throw new Error('it has no part with a report');
  // A report without a signature must be ignored (RFC 8460 §3).
  const submitter = await signerOf(mail, author, keys);
  if (submitter === undefined) return { outcome: 'unsigned' };
  const packed = decodeTransfer(mail.subarray(part.bodyOffset, part.end), part.encoding);
  const reported = await readReport(packed, part.contentType.endsWith('+gzip'));
  const local = new Set(domains);
  const ours = reported.filter(({ domain }) => local.has(domain)).slice(0, maxReported);
  return ours.length === 0 ? { outcome: 'foreign' } : { outcome: 'signed', submitter, reported: ours };
}

function isReport(mail: Buffer, { contentType, boundary, bodyOffset, end, encoding }: Part): boolean {
  if (!types.includes(contentType) || boundary !== undefined) return false;
  return decodedSize(mail.subarray(bodyOffset, end), encoding) <= maxPackedBytes;
}

/** The domain with a valid signature that may sign for the author. */
async function signerOf(mail: Buffer, author: string, keys: SigningKeys): Promise<string | undefined> {
  const resolver = (name: string): Promise<string[][]> => {
    const records = keys.get(name.toLowerCase());
    if (records === undefined) return Promise.reject(Object.assign(new Error('no key'), { code: 'ENOTFOUND' }));
    return Promise.resolve(records.map((strings) => [...strings]));
  };
  const { results } = await dkimVerify(mail, { resolver });
  return results
    .filter(({ status }) => status.result === 'pass')
    .map(({ signingDomain }) => signingDomain.toLowerCase())
    .find((domain) => maySignFor(author, domain));
}

answerJobs(readReportMail);
