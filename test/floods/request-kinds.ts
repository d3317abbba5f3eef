import { gzipSync } from 'node:zlib';
import { asking, basic, form, type FloodRequest, json, type Kind } from './flood.js';

const page = { Accept: 'text/html' };
const wideForm = Array.from({ length: 999 }, (_, n) => `field${n}=x`).join('&');
const question = { ip: '192.0.2.1', mail: 'a@client.example' };
const recipients = Array.from({ length: 100 }, (_, n) => `user${n}@localhost`);
const explained = JSON.stringify({ ...question, rcpt: recipients });
const largeForm = JSON.stringify({
  folder: 'INBOX',
  action: 'read',
  messageIds: Array.from({ length: 20_000 }, (_, n) => `1700000000.M${n}P1Q1.client.example`),
});
const bombs = [form, json].map((type) => ({ ...type, 'Content-Encoding': 'gzip' }));
const bomb = gzipSync(Buffer.alloc(50_000_000, 'a'));
const manyFields = Object.fromEntries(Array.from({ length: 700 }, (_, n) => [`X-${n}`, 'a word']));
const tags = Array.from({ length: 600 }, (_, n) => `"tag${n}"`).join(', ');
const ranges = `bytes=${Array.from({ length: 600 }, (_, n) => `${n}-${n + 1}`).join(',')}`;
const methods = ['DELETE', 'PUT', 'PATCH', 'OPTIONS', 'PROPFIND', 'TRACE', 'LOCK'];
const dumps: readonly FloodRequest[] = [
  { path: '/system/heapdump', method: 'POST' },
  { path: '/system/threads' },
  { path: '/system/heapdump', method: 'POST', as: 'operate' },
  { path: '/system/threads', as: 'operate' },
];

const pick = <T>(list: readonly T[], random: () => number): T => list[Math.floor(random() * list.length)] as T;

const guessByBasic = (random: () => number): FloodRequest => ({
  path: '/store',
  headers: { Authorization: basic(`name${Math.floor(random() * 1e6)}`, 'a guess') },
});

const guessByForm = (random: () => number): FloodRequest => ({
  path: '/sign-in',
  method: 'POST',
  headers: { ...form, ...page },
  body: new URLSearchParams({ username: `name${Math.floor(random() * 1e6)}`, password: 'a guess' }).toString(),
});

/** Floods of whole requests, each answered before the next of its connection. */
export const requestKinds: readonly Kind[] = [
  asking('http-docs', 'role read opens /docs on 90 connections', { path: '/docs', headers: page, as: 'read' }),
  asking('http-openapi', 'role read gets /openapi.json on 90 connections', { path: '/openapi.json', as: 'read' }),
  asking('http-explain', 'role read has a mail to 100 recipients explained on 90 connections', {
    path: '/pipeline/explain',
    method: 'POST',
    headers: json,
    body: explained,
    as: 'read',
  }),
  asking('http-metrics', 'role read opens /metrics on 90 connections', { path: '/metrics', headers: page, as: 'read' }),
  asking('http-scrape', 'role read scrapes /metrics/prometheus on 90 connections', {
    path: '/metrics/prometheus',
    as: 'read',
  }),
  asking('http-overview', 'role read opens / on 90 connections', { path: '/', headers: page, as: 'read' }),
  asking('http-search', 'role operate searches all mail on 90 connections', (n) => ({
    path: `/search?q=weather%20${n}`,
    headers: page,
    as: 'operate',
  })),
  asking(
    'http-health-many',
    'strangers ask for /health on 400 connections of 200 addresses',
    { path: '/health' },
    {
      clients: 400,
      from: 200,
    },
  ),
  asking('http-wide-forms', 'strangers send sign-in forms of 999 fields on 90 connections', {
    path: '/sign-in',
    method: 'POST',
    headers: { ...form, ...page },
    body: wideForm,
  }),
  asking('http-guessing-basic', 'passwords are guessed by Basic on 90 connections of one address', (_, { random }) =>
    guessByBasic(random),
  ),
  asking('http-guessing-form', 'passwords are guessed in the form on 90 connections of one address', (_, { random }) =>
    guessByForm(random),
  ),
  asking(
    'http-guessing-basic-many',
    'passwords are guessed by Basic from 254 addresses',
    (_, { random }) => guessByBasic(random),
    { clients: 254, from: 254 },
  ),
  asking(
    'http-guessing-form-many',
    'passwords are guessed in the form from 254 addresses',
    (_, { random }) => guessByForm(random),
    { clients: 254, from: 254 },
  ),
  asking('http-not-found', 'strangers and role read ask for paths that do not exist on 90 connections', (n, flood) => ({
    path: `/no/such/${flood.random()}`,
    headers: page,
    ...(n % 2 === 0 && { as: 'read' }),
  })),
  asking('http-wrong-methods', 'strangers use methods that are not allowed on 90 connections', (_, { random }) => ({
    path: pick(['/health', '/users', '/', '/sign-in'], random),
    method: pick(methods, random),
  })),
  asking('http-long-targets', 'strangers ask for paths and queries of 8 KB on 90 connections', (_, { random }) => ({
    path: `/users${pick(['/', '?a='], random)}${'%41'.repeat(2700)}`,
  })),
  asking('http-many-fields', 'strangers send 700 header fields on 90 connections', {
    path: '/health',
    headers: manyFields,
  }),
  asking('http-large-forms', 'role operate sends JSON of 1 MB on 90 connections', {
    path: '/store/localhost/bruno/messages/read-status',
    method: 'POST',
    headers: json,
    body: largeForm,
    as: 'operate',
  }),
  asking('http-large-strangers', 'strangers send bodies of 1 MB on 90 connections', {
    path: '/sign-in',
    method: 'POST',
    headers: form,
    body: 'a'.repeat(1_000_000),
  }),
  asking('http-compressed', 'role read sends 50 KB that unpack to 50 MB on 90 connections', (n) => ({
    path: '/pipeline/explain',
    method: 'POST',
    headers: bombs[n % bombs.length] ?? {},
    body: bomb,
    as: 'read',
  })),
  asking('http-ranges', 'role read asks with 600 ranges and 600 tags on 90 connections', (n) => ({
    path: n % 2 === 0 ? '/openapi.json' : '/docs',
    headers: { Range: ranges, 'If-None-Match': tags },
    as: 'read',
  })),
  asking('http-dumps', 'those who may not ask for heap dumps and thread dumps on 90 connections', (_, { random }) =>
    pick(dumps, random),
  ),
];
