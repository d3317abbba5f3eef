import { resolveKitHere } from '../../core/host/site-modules.js';

/** For `node --import`: what runs then finds `postern/plugin` and `postern/testing`, wherever it lies. */
resolveKitHere();
