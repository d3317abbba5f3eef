import { z } from 'zod';
import { secret } from '../../../core/contracts/outline.js';
import { isClearText } from './web-source.js';

const name = '[A-Za-z0-9][A-Za-z0-9._-]{0,127}';
const layer = new RegExp(`^(${name}|\\{server\\})(/(${name}|\\{server\\})){0,1}$`);

/** Where this server pulls its configuration from. */
export const SyncOptions = z
  .strictObject({
    source: z
      .string()
      .min(1)
      .max(2000)
      .describe(
        'Where the files are: a folder such as /etc/postern/central, an https URL of a file or of a manifest, or the address of another kind that a plugin offers.',
      )
      .meta({ examples: ['/etc/postern/central'] }),
    server: z
      .string()
      .regex(new RegExp(`^${name}$`), 'must be a name such as mail1')
      .optional()
      .describe('What this server is called in the layers; its hostname if absent.')
      .meta({ examples: ['mail1'] }),
    layers: z
      .array(z.string().regex(layer, 'must be a name such as base, {server} or servers/{server}'))
      .min(1)
      .max(10)
      .default(['base', '{server}'])
      .describe(
        'Which files count, the lowest first: "base" is base.json5, or every .json5 file of the folder base. The first must be there, the others may.',
      ),
    intervalSeconds: z.int().min(5).max(86_400).default(60).describe('Between two looks at the source, in seconds.'),
    apply: z
      .enum(['automatic', 'manual'])
      .default('automatic')
      .describe('"manual" only checks and shows what is new; POST /config/sync, or its button, brings it into force.'),
    token: secret().optional().describe('For an https source: sent as Authorization: Bearer.'),
    username: z
      .string()
      .min(1)
      .optional()
      .describe('For an https source: Basic authentication.')
      .meta({ examples: ['mail1'] }),
    password: secret().optional().describe('Goes with username.'),
    timeoutSeconds: z.int().min(1).max(300).default(20).describe('Time for one look with all its files, in seconds.'),
    maxBytes: z
      .int()
      .min(1024)
      .max(16 * 1024 * 1024)
      .default(1024 * 1024)
      .describe('All files together may be so large, in bytes.'),
  })
  .superRefine((sync, context) => {
    if (isClearText(sync.source)) {
      const message = 'must be https: http carries configuration and token in clear text, and is for loopback alone';
      context.addIssue({ code: 'custom', path: ['source'], message });
    }
    if ((sync.username === undefined) !== (sync.password === undefined)) {
      context.addIssue({ code: 'custom', path: ['username'], message: 'username and password belong together' });
    }
    if (sync.token !== undefined && sync.username !== undefined) {
      context.addIssue({
        code: 'custom',
        path: ['token'],
        message: 'give a token, or username and password, not both',
      });
    }
  });
export type SyncSettings = z.output<typeof SyncOptions>;
