import { resolveKitHere } from '../../core/host/site-modules.js';

/** For `node --import`: resolves `postern/plugin` and `postern/testing` from any location. */
resolveKitHere();
