// Copies the text in front of a button that says data-copy. The buttons show themselves only where that works.
function reveal(part) {
  for (const button of part.querySelectorAll('[data-copy]')) button.hidden = false;
}

if (navigator.clipboard) {
  reveal(document);
  document.addEventListener('htmx:afterSettle', (event) => reveal(event.target));
  document.addEventListener('click', async (event) => {
    const button = event.target.closest('[data-copy]');
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Select and copy it by hand';
    }
    // The text says what was done; the label still says what the button is for.
    button.removeAttribute('aria-label');
  });
}
