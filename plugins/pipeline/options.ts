import { z } from 'zod';

/** Nothing can be chosen: the pages show what the other plugins have registered. */
export const PipelineOptions = z.strictObject({});
