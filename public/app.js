// Loaded before the page is drawn, so that a chosen theme does not flash. Everything works without this file.
const root = document.documentElement;
const chosen = localStorage.getItem('theme');
if (chosen === 'light' || chosen === 'dark') root.dataset.theme = chosen;

const themes = { automatic: '◐', light: '○', dark: '●' };

const system = matchMedia('(prefers-color-scheme: dark)');

function showTheme(button) {
  const theme = root.dataset.theme ?? 'automatic';
  button.textContent = themes[theme];
  button.title = `Theme: ${theme}${theme === 'automatic' ? `, now ${system.matches ? 'dark' : 'light'}` : ''}`;
  button.setAttribute('aria-label', button.title);
}

function switchTheme({ currentTarget }) {
  const names = Object.keys(themes);
  const next = names[(names.indexOf(root.dataset.theme ?? 'automatic') + 1) % names.length];
  if (next === 'automatic') {
    delete root.dataset.theme;
    localStorage.removeItem('theme');
  } else {
    root.dataset.theme = next;
    localStorage.setItem('theme', next);
  }
  showTheme(currentTarget);
}

/** Groups of the navigation that were closed stay closed, but the one of the current page. */
function keepGroups() {
  const closed = new Set(JSON.parse(localStorage.getItem('closed-groups') ?? '[]'));
  for (const group of document.querySelectorAll('.nav.wide .nav-group')) {
    const { group: name } = group.dataset;
    if (closed.has(name) && !group.querySelector('[aria-current]')) group.open = false;
    group.addEventListener('toggle', () => {
      if (group.open) closed.delete(name);
      else closed.add(name);
      localStorage.setItem('closed-groups', JSON.stringify([...closed]));
    });
  }
}

document.addEventListener('DOMContentLoaded', () => {
  keepGroups();
  for (const button of document.querySelectorAll('[data-theme-switch]')) {
    button.hidden = false;
    showTheme(button);
    button.addEventListener('click', switchTheme);
    system.addEventListener('change', () => showTheme(button));
  }
  // The notice is shown once: its key is no part of the address.
  const here = new URL(location.href);
  if (here.searchParams.has('notice')) {
    here.searchParams.delete('notice');
    history.replaceState(history.state, '', here);
  }
});

// A toast leaves by itself unless it reports a problem; Escape and a click close all of them.
document.addEventListener('htmx:oobAfterSwap', () => {
  const toast = document.querySelector('#toasts > [data-tone="good"]:last-child');
  if (toast) setTimeout(() => toast.remove(), 6000);
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') document.querySelector('#toasts')?.replaceChildren();
});
document.addEventListener('click', (event) => event.target.closest('.toast')?.remove());

// A part of the page that is replaced keeps the keyboard focus, and what was scrolled, ticked and opened in it.
const focusable = 'a[href], button, input, select, textarea, summary, [tabindex]';
const refreshed = new Map();
const keyOf = (element) =>
  element.id ||
  [element.tagName, element.getAttribute('href') ?? element.getAttribute('aria-label') ?? element.textContent].join(
    ' ',
  );

function remember({ detail: { target } }) {
  if (!target?.id) return;
  const focused = document.activeElement;
  refreshed.set(target.id, {
    focus: focused !== target && target.contains(focused) ? keyOf(focused) : undefined,
    scrolled: [...target.querySelectorAll('[tabindex]')].map((one) => [keyOf(one), one.scrollLeft, one.scrollTop]),
    ticked: [...target.querySelectorAll('[type="checkbox"]:checked')].map(({ name, value }) => `${name} ${value}`),
    opened: [...target.querySelectorAll('details[open] > summary')].map(keyOf),
  });
}

function restore({ detail: { target } }) {
  const kept = refreshed.get(target?.id);
  if (!kept) return;
  refreshed.delete(target.id);
  const now = document.getElementById(target.id);
  const places = [...now.querySelectorAll(focusable)].filter((one) => one.checkVisibility());
  const find = (key) => places.find((one) => keyOf(one) === key);
  for (const key of kept.opened) find(key)?.parentElement.setAttribute('open', '');
  for (const box of now.querySelectorAll('[type="checkbox"]'))
    if (kept.ticked.includes(`${box.name} ${box.value}`)) box.checked = true;
  for (const [key, left, top] of kept.scrolled) find(key)?.scrollTo({ left, top, behavior: 'instant' });
  if (kept.focus !== undefined && !now.contains(document.activeElement))
    (find(kept.focus) ?? places[0])?.focus({ preventScroll: true });
}

for (const name of ['htmx:beforeSwap', 'htmx:oobBeforeSwap']) document.addEventListener(name, remember);
for (const name of ['htmx:afterSwap', 'htmx:oobAfterSwap']) document.addEventListener(name, restore);
