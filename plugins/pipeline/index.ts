import { explaining } from '../../core/contracts/explaining.js';
import { catalogue } from '../../core/contracts/server.js';
import { definePlugin } from '../../core/plugin.js';
import { PipelineOptions } from './options.js';
import { pipelineEndpoints } from './routes.js';

/** Shows what decides about mail, and explains what would happen to one. */
export const pipeline = definePlugin({
  name: 'pipeline',
  options: PipelineOptions,
  needs: { catalogue, explaining },
  setup({ http }, { catalogue: known, explaining: asked }) {
    http.mount(pipelineEndpoints({ catalogue: known, explaining: asked }));
    http.navigate({ title: 'Pipeline', href: '/pipeline', order: 70, role: 'read' });
  },
});
