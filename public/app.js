// Loaded before the page is drawn, so that a chosen theme does not flash. Everything works without this file.
const root = document.documentElement;
const chosen = localStorage.getItem('theme');
if (chosen === 'light' || chosen === 'dark') root.dataset.theme = chosen;

function switchTheme() {
  const dark =
    root.dataset.theme === 'dark' || (!root.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches);
  root.dataset.theme = dark ? 'light' : 'dark';
  localStorage.setItem('theme', root.dataset.theme);
}

document.addEventListener('DOMContentLoaded', () => {
  for (const button of document.querySelectorAll('[data-theme-switch]')) {
    button.hidden = false;
    button.addEventListener('click', switchTheme);
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
