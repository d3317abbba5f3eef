import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Router } from '@koa/router';
import Koa from 'koa';
import koaBasicAuth from 'koa-basic-auth';

/**
 * The peer: Koa with the same router and Basic auth, and nothing else: no log, request id, security headers, roles, limits
 * or metrics. It answers what Postern has answered, from memory.
 */
const folder = process.argv[2] ?? '.';
const read = (name: string): string => readFileSync(join(folder, name), 'utf8');
const page = JSON.parse(read('page.json')) as object;
const [landing, inbox, metrics] = [read('landing.html'), read('folder.html'), read('metrics.txt')];

const router = new Router();
const signedIn = koaBasicAuth({ name: 'admin', pass: process.env['POSTERN_ADMIN_PASSWORD'] ?? '' });
router.get('/health', (ctx) => (ctx.body = { status: 'UP' }));
router.get('/bench/page', signedIn, (ctx) => (ctx.body = page));
router.get('/bench/landing', signedIn, (ctx) => {
  ctx.type = 'html';
  ctx.body = landing;
});
router.get('/bench/folder', signedIn, (ctx) => {
  ctx.type = 'html';
  ctx.body = inbox;
});
router.get('/bench/metrics', signedIn, (ctx) => {
  ctx.type = 'text';
  ctx.body = metrics;
});

const koa = new Koa();
koa.use(router.routes());
const server = koa.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`bare ready http=http://127.0.0.1:${port} smtp=none\n`);
});
process.on('SIGTERM', () => process.exit(0));
