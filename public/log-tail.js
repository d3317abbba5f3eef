// Adds lines of the log to the page as they come. What is logged is only ever set as text.
const list = document.querySelector('[data-live]');
const blank = document.querySelector('#log-line');
const state = document.querySelector('#tail-state');
const most = 1000;
const placed = new Set(['level', 'time', 'plugin', 'msg']);
const traces = new Set(['session', 'transaction', 'requestId', 'messageId', 'uid', 'queueId']);
const tones = { warn: 'warn', error: 'bad', fatal: 'bad', info: 'info' };

function piece(className, text) {
  const element = document.createElement('span');
  element.className = className;
  element.textContent = text;
  return element;
}

/** All lines of the same session, transaction, request or message. */
function linkTo(value) {
  const link = document.createElement('a');
  link.href = `/logs?q=${encodeURIComponent(value)}`;
  link.textContent = value;
  return link;
}

function fieldOf([name, value]) {
  const field = piece('log-field', '');
  field.append(piece('log-name', `${name}=`));
  if (traces.has(name) && typeof value === 'string' && value !== '') field.append(linkTo(value));
  else field.append(typeof value === 'string' ? value : JSON.stringify(value));
  return field;
}

function lineOf(entry) {
  const line = blank.content.firstElementChild.cloneNode(true);
  line.dataset.tone = tones[entry.level] ?? 'neutral';
  line.querySelector('.log-time').textContent = String(entry.time ?? '')
    .replace('T', ' ')
    .replace('Z', '');
  line.querySelector('.log-level').textContent = entry.level;
  const said = line.querySelector('.log-said');
  if (entry.plugin) said.append(piece('log-plugin', entry.plugin), ' ');
  said.append(piece('log-message', entry.msg ?? ''));
  for (const field of Object.entries(entry)) if (!placed.has(field[0])) said.append(' ', fieldOf(field));
  return line;
}

const atEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 40;

function add(element) {
  const follow = atEnd();
  list.append(element);
  while (list.children.length > most) list.firstElementChild.remove();
  if (follow) window.scrollTo({ top: document.documentElement.scrollHeight });
}

list?.addEventListener('htmx:sseBeforeMessage', (event) => {
  event.preventDefault();
  const { type, data } = event.detail;
  if (type === 'line') add(lineOf(JSON.parse(data)));
  if (type === 'dropped')
    add(lineOf({ level: 'warn', msg: `${JSON.parse(data).lines} lines came too fast and are left out` }));
});
list?.addEventListener('htmx:sseOpen', () => (state.textContent = 'New lines are added below as they come.'));
list?.addEventListener('htmx:sseError', () => (state.textContent = 'The connection is lost; trying again.'));
list?.addEventListener('htmx:sseClose', () => (state.textContent = 'The server has ended this; reload to go on.'));
window.scrollTo({ top: document.documentElement.scrollHeight });
