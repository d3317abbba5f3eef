import type { z } from 'zod';
import type { PluginDefinition } from '../plugin.js';
import type { Services } from './service.js';

/** What a declaration may say. */
export const definitionKeys: readonly string[] = Object.keys({
  name: true,
  options: true,
  needs: true,
  uses: true,
  provides: true,
  views: true,
  assets: true,
  commands: true,
  checks: true,
  verify: true,
  kit: true,
  reload: true,
  setup: true,
} satisfies Record<keyof PluginDefinition<z.ZodType, Services, Services, Services>, true>);
