// Keys for lists and pages. Everything they do works by links and buttons as well; the sheet behind "?" turns them off.
const sheet = document.querySelector('#keys');
const off = document.querySelector('[data-keys-off]');

const isVisible = (element) => element.checkVisibility();
const rows = () =>
  [...document.querySelectorAll('main tbody tr, main ol.messages > li')].filter(
    (row) => isVisible(row) && row.querySelector('a[href]'),
  );
const currentRow = () => document.activeElement?.closest('main tbody tr, main ol.messages > li');

function move(step) {
  const all = rows();
  const at = all.indexOf(currentRow());
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step];
  next?.querySelector('a[href]').focus();
  next?.scrollIntoView({ block: 'nearest' });
}

const follow = (selector) => [...document.querySelectorAll(selector)].findLast(isVisible)?.click();

const keys = {
  '/': () => document.querySelector('[data-find]')?.select(),
  '?': () => sheet?.showModal(),
  j: () => move(1),
  k: () => move(-1),
  x: () => currentRow()?.querySelector('input[type="checkbox"]')?.click(),
  u: () => follow('.crumbs a'),
  '[': () => follow('a[rel="prev"]'),
  ']': () => follow('a[rel="next"]'),
};

document.addEventListener('keydown', (event) => {
  const { key, target, ctrlKey, metaKey, altKey, defaultPrevented } = event;
  if (ctrlKey || metaKey || altKey || defaultPrevented || !(key in keys)) return;
  const isTyping = target.closest('textarea, select, [contenteditable], input:not([type="checkbox"], [type="radio"])');
  if (isTyping || sheet?.open || localStorage.getItem('keys') === 'off') return;
  event.preventDefault();
  keys[key]();
});

document.querySelector('[data-find]')?.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  // Chromium would clear the field as well.
  event.preventDefault();
  event.currentTarget.blur();
});

if (off) {
  off.checked = localStorage.getItem('keys') === 'off';
  off.addEventListener('change', () => {
    if (off.checked) localStorage.setItem('keys', 'off');
    else localStorage.removeItem('keys');
  });
}
for (const button of document.querySelectorAll('[data-keys-show]')) {
  button.hidden = false;
  button.addEventListener('click', () => sheet?.showModal());
}
