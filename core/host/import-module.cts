/** `import` by Node itself: a bundler that makes CommonJS of what calls it makes `require` of the call. */
module.exports = (url: string): Promise<unknown> => import(url);
