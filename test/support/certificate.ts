export { selfSigned, type KeyPair } from '../kit/certificate.js';
