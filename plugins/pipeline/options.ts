import { z } from 'zod';

/** No options: the pages show what other plugins have registered. */
export const PipelineOptions = z.strictObject({});
