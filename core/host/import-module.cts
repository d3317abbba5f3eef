/** Node's own `import`: bundled CommonJS would turn it into `require`. */
module.exports = (url: string): Promise<unknown> => import(url);
