import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Navigation } from '../../../core/http/pages.js';

const admin = { username: 'anna', role: 'admin' } as const;
const link = (title: string, order: number) =>
  ({ title, href: `/${title.toLowerCase()}`, order, role: 'read' }) as const;

test('pages of the site stand behind those of the server, each side by order, then by title', () => {
  const navigation = new Navigation();
  navigation.add('webhook', link('Webhook', 1), 'site');
  navigation.add('config', link('Audit', 95), 'server');
  navigation.add('words', link('Words', 0), 'site');
  navigation.add('config', link('Configuration', 90), 'server');
  const undo = navigation.add('greylisting', link('Greylisting', 1), 'site');
  const titles = () => navigation.show('/', admin).map(({ title }) => title);
  assert.deepEqual(titles(), ['Configuration', 'Audit', 'Words', 'Greylisting', 'Webhook']);
  undo();
  assert.deepEqual(titles(), ['Configuration', 'Audit', 'Words', 'Webhook']);
});

test('the link of the page that one is on is the current one, the most precise of several', () => {
  const navigation = new Navigation();
  navigation.add('a', { ...link('Overview', 0), href: '/' }, 'server');
  navigation.add('a', { ...link('Queue', 1), href: '/queue' }, 'server');
  navigation.add('b', { ...link('Dead', 1), href: '/queue/dead' }, 'site');
  const currentAt = (path: string) =>
    navigation
      .show(path, admin)
      .filter(({ current }) => current)
      .map(({ title }) => title);
  assert.deepEqual(['/', '/queue/7', '/queue/dead/7', '/queues'].map(currentAt), [
    ['Overview'],
    ['Queue'],
    ['Dead'],
    [],
  ]);
});
