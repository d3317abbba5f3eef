import { z } from 'zod';

/** Plain http is for tests on this machine: it does not authenticate the authority. */
const isSafe = (url: string): boolean => {
  const { protocol, hostname } = new URL(url);
  return protocol === 'https:' || ['localhost', '127.0.0.1', '[::1]'].includes(hostname);
};

export const AcmeOptions = z
  .strictObject({
    names: z
      .array(
        z
          .string()
          .max(253)
          .regex(
            /^(?=.*\.)(?!-)[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+$/,
            'must be a DNS name in lower case, such as mail.example.org',
          ),
      )
      .max(100)
      .default([])
      .describe('Host names of the certificate; empty: none is obtained. The first should be `hostname`.')
      .meta({ examples: [['mail.example.org']] }),
    termsAgreed: z
      .boolean()
      .default(false)
      .describe('You agree to the terms of service of the authority. Needed with names.'),
    contact: z
      .array(z.email())
      .max(10)
      .default([])
      .describe('Mail addresses that the authority may write to.')
      .meta({ examples: [['postmaster@example.org']] }),
    challenge: z
      .enum(['http-01', 'tls-alpn-01'])
      .default('http-01')
      .describe('http-01 needs port 80 to reach the HTTP listener, tls-alpn-01 port 443 the HTTPS listener.'),
    directory: z
      .url({ protocol: /^https?$/ })
      .refine(isSafe, 'must be https')
      .default('https://acme-v02.api.letsencrypt.org/directory')
      .describe('Address of the directory of the authority (RFC 8555 §7.1.1).'),
  })
  .refine(({ names, termsAgreed }) => names.length === 0 || termsAgreed, {
    path: ['termsAgreed'],
    message: 'read the terms of service of the authority, then set it to true',
  });

export type AcmeSettings = z.output<typeof AcmeOptions>;
