import assert from 'node:assert/strict';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { checkConfiguration } from '../../plugins/doctor/configuration-check.js';
import { startInProcess } from '../support/in-process-server.js';
import { freeListeners } from '../support/server-process.js';

const config = `{ smtp: { listeners: ${freeListeners} }, http: { viewOverrides: 'site/views' } }`;
const view = (sentence: string): string =>
  `{% extends layout %}{% block content %}<p>${sentence} {{ page.hostname }}</p>{% endblock %}`;

test('views of http.viewOverrides take the place of ours, are read again at a reload, and a broken one changes nothing', async (t) => {
  const put = async (folder: string, name: string, text: string): Promise<void> => {
    const file = join(folder, 'site', 'views', name);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text);
  };
  const { folder, admin, server } = await startInProcess(t, config, {}, (place) =>
    put(place, 'monitoring/landing.njk', view('Welcome to')),
  );
  const { hostname } = server.configuration;
  assert.match(await admin.page('/'), new RegExp(`<p>Welcome to ${hostname}</p>`));
  assert.match(await admin.page('/health/extended'), /<h1>/, 'the others are ours');

  await put(folder, 'monitoring/landing.njk', view('Hello from'));
  assert.match(await admin.page('/'), /Welcome to/);
  await admin.json('/config/reload', { method: 'POST' });
  assert.match(await admin.page('/'), /Hello from/);

  await put(folder, 'monitoring/landing.njk', '{% block content %}');
  const refused = JSON.stringify(await admin.json('/config/reload', { method: 'POST' }, 422));
  assert.match(refused, /http\.viewOverrides, view monitoring\/landing\.njk/);
  assert.match(await admin.page('/'), /Hello from/);

  await writeFile(join(folder, 'postern.json5'), config.replace(", http: { viewOverrides: 'site/views' }", ''));
  await admin.json('/config/reload', { method: 'POST' });
  assert.doesNotMatch(await admin.page('/'), /Hello from/);

  await writeFile(join(folder, 'postern.json5'), config);
  await rm(join(folder, 'site'), { recursive: true });
  await admin.json('/config/reload', { method: 'POST' }, 422);
  await assert.rejects(checkConfiguration({}, { cwd: folder, env: {}, print: () => undefined }), {
    message: `http.viewOverrides: ${join(folder, 'site/views')} is not a folder that can be read.`,
  });
});
