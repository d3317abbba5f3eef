import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';
import type { AcmeSettings } from '../options.js';
import type { Renewal } from '../renewal.js';

const group = 'TLS';
const Answer = z.object({
  names: z.array(z.string()).describe('The names that the certificate shall have; empty: ACME is off.'),
  authority: z.string().describe('Address of its directory.'),
  challenge: z.enum(['http-01', 'tls-alpn-01']),
  state: z.enum(['off', 'none', 'issued', 'failing', 'running']),
  issued: z
    .object({ names: z.string(), issuer: z.string(), from: z.iso.datetime(), to: z.iso.datetime() })
    .nullable()
    .describe('The certificate in use; null while it is self-signed.'),
  nextAttempt: z.iso.datetime().nullable(),
  failures: z.int().describe('Attempts that failed since the last certificate.'),
  error: z.string().nullable().describe('Why the last attempt failed.'),
});

interface AcmeDeps {
  readonly renewal: Renewal;
  readonly settings: () => AcmeSettings;
  readonly now: () => number;
  /** The answers to open HTTP-01 challenges, by token. */
  readonly tokens: ReadonlyMap<string, string>;
}

export const acmeEndpoints = (deps: AcmeDeps): readonly AnyEndpoint[] => [
  challengeEndpoint(deps),
  stateEndpoint(deps),
  renewEndpoint(deps),
];

/** For the authority (RFC 8555 §8.3). */
const challengeEndpoint = ({ tokens }: AcmeDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/.well-known/acme-challenge/{token}',
    summary: 'Answer to a challenge of the certificate authority',
    group,
    access: 'public',
    hidden: true,
    produces: ['text'],
    cache: 'no-store',
    params: z.object({ token: z.string().max(256) }),
    handle: ({ params }) => {
      const body = tokens.get(params.token);
      if (body === undefined) throw problem('not-found', 'No challenge of that token is open.');
      return respond({ text: { body, contentType: 'application/octet-stream' } });
    },
  });

const stateEndpoint = ({ renewal, settings, now }: AcmeDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/acme',
    summary: 'The certificate of the server, and when it is renewed',
    group,
    access: 'read',
    answer: Answer,
    view: 'acme.njk',
    cache: 'no-store',
    handle: () => answerOf(renewal, settings(), now()),
  });

function answerOf(
  renewal: Renewal,
  { names, directory, challenge }: AcmeSettings,
  now: number,
): z.output<typeof Answer> {
  const { issued, isRunning } = renewal;
  const { failures, error, notBefore } = renewal.state;
  const settled = error === null ? (issued === undefined ? 'none' : 'issued') : 'failing';
  const isOff = names.length === 0;
  return {
    names: [...names],
    authority: directory,
    challenge,
    state: isOff ? 'off' : isRunning ? 'running' : settled,
    issued:
      issued === undefined
        ? null
        : {
            names: issued.subjectAltName ?? '',
            issuer: issued.issuer,
            from: new Date(issued.validFrom).toISOString(),
            to: new Date(issued.validTo).toISOString(),
          },
    nextAttempt: isOff ? null : new Date(Math.max(now, notBefore, renewal.dueAt())).toISOString(),
    failures: isOff ? 0 : failures,
    error: isOff ? null : error,
  };
}

const renewEndpoint = ({ renewal, settings }: AcmeDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/acme/renew',
    summary: 'Obtain a new certificate now',
    group,
    access: 'admin',
    success: [202],
    problems: ['conflict', 'too-many-requests'],
    body: { kind: 'fields', schema: z.strictObject({}) },
    answer: z.object({ state: z.literal('running') }),
    cache: 'no-store',
    handle: () => {
      renewal.renewNow();
      return respond({
        status: 202,
        location: '/acme',
        model: { state: 'running' as const },
        notice: 'The authority is asked for a certificate. This page shows the result.',
        audit: { action: 'renew certificate', selector: { names: settings().names } },
      });
    },
  });
