// Says how many rows came since a list was drawn. They are shown when the reader asks for them: nothing moves by itself.
// It polls while the page is visible, less often while the server does not answer, and never again after a refusal.
const usualMs = 10_000;
const maxMs = 120_000;
let waitMs = usualMs;
let place;
let timer;

/** The server logs each of these requests: such a line is not new to the reader. */
const isOurs = ({ line }) => line?.msg === 'request' && line.path === location.pathname;

function say(count, isMore) {
  const link = place.querySelector('a');
  const text = `${format.formatNumber(count)}${isMore ? '+' : ''} new · show`;
  if (count > 0 && link.textContent !== text) link.textContent = text;
  link.hidden = count <= 0;
}

async function look() {
  const url = new URL(place.dataset.news, location.href);
  url.searchParams.set('since', place.dataset.since);
  const asked = place;
  const answer = await fetch(url, { headers: { accept: 'application/json' }, cache: 'no-cache' });
  if (!answer.ok) {
    // Without an account, or without the list, no later request would be answered either.
    if (answer.status < 500 && answer.status !== 429) delete asked.dataset.news;
    throw new Error(answer.statusText);
  }
  const { items, total = null, totalIsLeast = false, nextCursor, next } = await answer.json();
  if (place !== asked) return;
  const matching = items.filter(({ matched }) => matched !== false);
  const isMore = totalIsLeast || (total === null && Boolean(nextCursor ?? next));
  say((total ?? matching.length) - matching.filter(isOurs).length, isMore);
  if (isMore) delete place.dataset.news;
}

function schedule() {
  clearTimeout(timer);
  timer = setTimeout(poll, waitMs);
}

async function poll() {
  clearTimeout(timer);
  if (place?.dataset.news === undefined || document.hidden) return;
  try {
    await look();
    waitMs = usualMs;
  } catch {
    waitMs = Math.min(maxMs, waitMs * 2);
  }
  schedule();
}

/** A list that replaces another has a time of its own. */
function watch() {
  const found = document.querySelector('[data-news]');
  if (found === null || found === place) return;
  place = found;
  schedule();
}

watch();
document.addEventListener('htmx:afterSettle', watch);
document.addEventListener('visibilitychange', poll);
