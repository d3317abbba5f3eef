/** Secrets as they turn up in the fields and sentences of a log, or in a configuration; `plain` must not be seen again. */
export interface PlantedSecret {
  readonly plain: string;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly text?: string;
}

const jwt = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U';

export const plantedSecrets: readonly PlantedSecret[] = [
  { plain: 'hunter2-password', fields: { password: 'hunter2-password' } },
  { plain: 'pass-of-upstream', fields: { auth: { user: 'relay', pass: 'pass-of-upstream' } } },
  { plain: 'QWxhZGRpbjpvcGVuc2VzYW1l', fields: { headers: { authorization: 'Basic QWxhZGRpbjpvcGVuc2VzYW1l' } } },
  { plain: 'QWxhZGRpbjpvcGVuIHNlc2FtZQ==', fields: {}, text: 'client sent Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==' },
  { plain: 'bearer-token-value-1', fields: { note: 'Authorization: Bearer bearer-token-value-1' } },
  { plain: jwt, fields: { header: jwt } },
  { plain: 'dbuserpw', fields: { DATABASE_URL: 'postgres://mail:dbuserpw@db.example/mail' } },
  { plain: 'p@ss/word', fields: { url: 'amqp://mail:p@ss/word@mq.example/' } },
  { plain: 'AKIAIOSFODNN7EXAMPLE', fields: { AWS_KEY_ID: 'AKIAIOSFODNN7EXAMPLE' } },
  { plain: 'AKIAI44QH8DHBEXAMPLE', fields: {}, text: 'uploaded with AKIAI44QH8DHBEXAMPLE to the bucket' },
  {
    plain: 'MIIEvQIBADANBgkq',
    fields: { tls: { cert: 'x', pem: '-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----' } },
  },
  { plain: 'c2FsdHNhbHQ', fields: { hash: 'scrypt$32768$8$3$c2FsdHNhbHQ$aGFzaGhhc2g' } },
  { plain: 'bcryptbcryptbcrypt', fields: { old: '$2b$12$bcryptbcryptbcrypt' } },
  { plain: 'AHVzZXIAcGFzc3dvcmQ=', fields: { line: 'AUTH PLAIN AHVzZXIAcGFzc3dvcmQ=' } },
  { plain: 'cookie-value-77', fields: { cookie: 'session=cookie-value-77' } },
  { plain: 'client-secret-9', fields: { oauth: { clientSecret: 'client-secret-9' } } },
  { plain: 'query-token-5', fields: { path: '/config?access_token=query-token-5&page=2' } },
  { plain: 'two words here', fields: {}, text: 'bad body {"username":"a","password":"two words here"}' },
  { plain: 'ghp_abcdefghijklmnopqrstuvwxyz0123456789', fields: { remote: 'ghp_abcdefghijklmnopqrstuvwxyz0123456789' } },
  { plain: '982451653', fields: { users: [{ name: 'a', pin: 982451653 }] } },
  { plain: 'admin-made-up', fields: { env: { POSTERN_ADMIN_PASSWORD: 'admin-made-up' } } },
  { plain: 'api-key-in-list', fields: { 'x-api-key': ['api-key-in-list'] } },
];
