import { fileURLToPath } from 'node:url';

/** The folder of package.json; the tests run from dist/test. */
export const projectRoot = fileURLToPath(new URL('../../../', import.meta.url));
