export { selfSigned, type KeyPair } from '../../core/net/self-signed.js';
