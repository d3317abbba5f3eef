import { service } from './service.js';

/** The certificate of listeners that name none of their own, for a plugin that gets it from an authority. */
export interface ServerCertificateService {
  /** PEM, its chain included; undefined while it is self-signed by the server. */
  readonly issued: string | undefined;
  /**
   * Writes it into the data folder, and new connections use it: no restart. Durable when it resolves.
   *
   * @param key PEM of the private key
   * @param cert PEM of the certificate, with its chain
   * @throws start error when they cannot be used; then the old one stays
   */
  install(key: string, cert: string): Promise<void>;
  /**
   * Answers TLS-ALPN-01 for a DNS name on the HTTPS listener (RFC 8737 §3), until the returned function is called.
   *
   * @param pair PEM of a key and of the certificate with the `acmeIdentifier`
   */
  answerChallenge(name: string, pair: { readonly key: string; readonly cert: string }): () => void;
}

export const serverCertificate = service<ServerCertificateService>('postern.server-certificate');
