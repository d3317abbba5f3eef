import { explaining } from '../../core/contracts/explaining.js';
import { pluginsOverview } from '../../core/contracts/plugins-overview.js';
import { catalogue, configuration } from '../../core/contracts/server.js';
import { definePlugin } from '../../core/plugin.js';
import { PipelineOptions } from './options.js';
import { pipelineEndpoints } from './http/routes.js';

/** Shows which hooks decide about mail, and explains what would happen to a message. */
export const pipeline = definePlugin({
  name: 'pipeline',
  options: PipelineOptions,
  needs: { catalogue, configuration, explaining, pluginsOverview },
  setup({ http }, { pluginsOverview: overview, ...services }) {
    http.mount(pipelineEndpoints({ ...services, overview }));
    http.navigate({ title: 'Pipeline', href: '/pipeline', order: 70, role: 'read', group: 'Delivery' });
  },
});
