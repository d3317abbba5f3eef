// Shows how far an upload has come. Without this file the same button sends the same form.
for (const form of document.querySelectorAll('[data-draft]')) {
  const bar = form.querySelector('[data-upload-progress]');
  const status = form.querySelector('[data-upload-status]');
  form.addEventListener('submit', (event) => {
    const button = event.submitter;
    if (!button?.matches('[data-upload-button]')) return;
    event.preventDefault();
    send(form, button, bar, status);
  });
}

function send(form, button, bar, status) {
  const request = new XMLHttpRequest();
  request.open('POST', form.action);
  request.setRequestHeader('Accept', 'text/html');
  request.upload.addEventListener('progress', ({ loaded, total }) => {
    bar.value = total > 0 ? (loaded / total) * 100 : 0;
    status.textContent = `${Math.round(bar.value)} % sent`;
  });
  request.addEventListener('load', () => {
    if (request.status < 400) location.assign(request.responseURL);
    else if (request.status === 412) submitPlainly(form, button);
    else ended(reason(request), button, bar, status);
  });
  request.addEventListener('error', () => ended('The connection was lost. Nothing was attached.', button, bar, status));
  bar.value = 0;
  bar.hidden = false;
  button.disabled = true;
  status.textContent = 'Sending';
  const fields = new FormData(form);
  fields.set(button.name, button.value);
  request.send(fields);
}

function ended(sentence, button, bar, status) {
  bar.hidden = true;
  button.disabled = false;
  status.textContent = sentence;
}

// The page of a conflict is shown like any other answer to a form.
function submitPlainly(form, button) {
  button.disabled = false;
  const pressed = document.createElement('input');
  Object.assign(pressed, { type: 'hidden', name: button.name, value: button.value });
  form.append(pressed);
  HTMLFormElement.prototype.submit.call(form);
}

function reason(request) {
  const page = new DOMParser().parseFromString(request.responseText, 'text/html');
  return (
    page.querySelector('[data-problem], .lead')?.textContent.trim() ??
    `It was refused (${request.status}). Nothing was attached.`
  );
}
