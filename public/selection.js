// Ticks of a list: all of a page at once, and from one to another with the shift key. The form works without; data-selection names the ticks.
function bind(form) {
  if (form.dataset.bound) return;
  form.dataset.bound = 'yes';
  const boxes = [...form.querySelectorAll(`input[name="${form.dataset.selection || 'messageIds'}"]`)];
  const which = form.elements.namedItem('filter');
  const label = form.querySelector('[data-choose-all]');
  const all = label.querySelector('input');
  const chosen = form.querySelector('[data-chosen]');
  let last = null;

  function show() {
    const count = boxes.filter((box) => box.checked).length;
    const isAll = which.value !== '';
    for (const box of boxes) box.disabled = isAll;
    all.disabled = isAll;
    all.checked = count > 0 && count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
    chosen.textContent = isAll || count === 0 ? '' : `${count} ticked`;
  }

  for (const box of boxes) {
    box.addEventListener('click', (event) => {
      if (event.shiftKey && last !== null) {
        const [from, to] = [boxes.indexOf(last), boxes.indexOf(box)].sort((a, b) => a - b);
        for (const other of boxes.slice(from, to + 1)) other.checked = box.checked;
      }
      last = box;
      show();
    });
  }
  all.addEventListener('change', () => {
    for (const box of boxes) box.checked = all.checked;
    show();
  });
  which.addEventListener('change', show);
  // A page from the history brings its ticks back after this has run.
  window.addEventListener('pageshow', show);
  label.hidden = false;
  show();
}

function bindAll() {
  for (const form of document.querySelectorAll('[data-selection]')) bind(form);
}

bindAll();
// A search brings another list into the page.
document.addEventListener('htmx:afterSettle', bindAll);
