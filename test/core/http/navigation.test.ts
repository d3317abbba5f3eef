import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Navigation } from '../../../core/http/pages.js';

const admin = { username: 'anna', role: 'admin' } as const;
const link = (title: string, order: number) =>
  ({ title, href: `/${title.toLowerCase()}`, order, role: 'read' }) as const;

test('pages of the site come after those of the server, each by order, then by title', () => {
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

test('a link is the current one on all pages of its section', () => {
  const navigation = new Navigation();
  navigation.add('a', { ...link('Queue', 1), href: '/queue/list', section: '/queue' }, 'server');
  navigation.add('a', { ...link('Routes', 1), href: '/queue/routes' }, 'server');
  const current = (path: string) => navigation.show(path, admin).find((one) => one.current)?.title;
  assert.deepEqual(['/queue/list', '/queue/7', '/queue/routes/x', '/other'].map(current), [
    'Queue',
    'Queue',
    'Routes',
    undefined,
  ]);
});

test('links of the server have the heading that they name, those of the site are below Site', () => {
  const navigation = new Navigation();
  navigation.add('a', link('Overview', 0), 'server');
  navigation.add('a', { ...link('Queue', 1), group: 'Delivery' }, 'server');
  navigation.add('b', link('Words', 1), 'site');
  navigation.add('b', { ...link('Rules', 2), group: 'Delivery' }, 'site');
  assert.deepEqual(
    navigation.show('/', admin).map(({ title, group }) => [title, group]),
    [
      ['Overview', ''],
      ['Queue', 'Delivery'],
      ['Words', 'Site'],
      ['Rules', 'Delivery'],
    ],
  );
  const wrong = { ...link('Odd', 1), group: 'Odd' } as never;
  assert.throws(() => navigation.add('b', wrong, 'site'), /group must be one of Mail, Delivery, Server, Admin/);
});

test('the list is the same object until its links, the rights or the current link are others', () => {
  const navigation = new Navigation();
  navigation.add('a', { ...link('Queue', 1), role: 'admin' }, 'server');
  navigation.add('a', link('Store', 2), 'server');
  let open = true;
  const show = (path: string, rights: string) => navigation.show(path, admin, () => open, rights);
  const first = show('/queue/7', 'admin 1');
  assert.equal(show('/queue/8', 'admin 1'), first);
  assert.deepEqual(show('/store', 'admin 1').find(({ current }) => current)?.title, 'Store');
  assert.equal(show('/queue/7', 'admin 1'), first);
  open = false;
  assert.deepEqual(show('/queue/7', 'admin 2'), []);
  open = true;
  const undo = navigation.add('b', link('Words', 1), 'site');
  assert.deepEqual(
    show('/queue/7', 'admin 1').map(({ title }) => title),
    ['Queue', 'Store', 'Words'],
  );
  undo();
  assert.deepEqual(show('/queue/7', 'admin 1'), first);
});
