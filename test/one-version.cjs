/**
 * For `node --require`. Packages ask for versions of others, such as nodemailer, that have known faults. Where package.json
 * names one, all get that one, as in what the build bundles.
 */
const Module = require('node:module');
const path = require('node:path');

const root = path.dirname(__dirname);
const { devDependencies } = require('../package.json');
const packages = path.join(root, 'node_modules') + path.sep;
const requireFromRoot = Module.createRequire(path.join(root, 'package.json'));
const resolveFilename = Module._resolveFilename;

Module._resolveFilename = function resolveOne(request, parent, ...more) {
  const [name] = /^(?:@[^/]+\/)?[^/]+/.exec(request) ?? [];
  const isNamed = Object.hasOwn(devDependencies, name) && parent?.filename?.startsWith(packages) === true;
  return isNamed ? requireFromRoot.resolve(request) : resolveFilename.call(this, request, parent, ...more);
};
