import { z } from 'zod';

/** How long loading and starting may take, if nothing else is said. */
const usualStartSeconds = 30;

/** One element of `sitePlugins`. */
export const SitePluginOption = z.union([
  z.string().min(1),
  z.strictObject({
    from: z
      .string()
      .min(1)
      .describe('A folder or a file (relative to the configuration file), or the name of a package.'),
    mode: z
      .enum(['enforce', 'shadow'])
      .default('enforce')
      .describe('"shadow": its hooks are asked, and what they answer is only written to the log.'),
    required: z
      .boolean()
      .default(false)
      .describe('Whether the server does not start without it. Otherwise a plugin that fails is left out.'),
    startSeconds: z
      .int()
      .min(1)
      .max(600)
      .default(usualStartSeconds)
      .describe('How long it may take to load, to start, and to take new options, in seconds.'),
  }),
]);

/** A plugin of the site, as the operator names it. */
export interface SiteEntry {
  readonly from: string;
  readonly mode: 'enforce' | 'shadow';
  readonly required: boolean;
  readonly startSeconds: number;
}

export const siteEntry = (option: z.output<typeof SitePluginOption>): SiteEntry =>
  typeof option === 'string'
    ? { from: option, mode: 'enforce', required: false, startSeconds: usualStartSeconds }
    : option;
