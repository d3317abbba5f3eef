export { selfSigned, type KeyPair } from '../../core/testing/certificate.js';
