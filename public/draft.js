// Saves a draft while it is written, and shows how far an upload has come. Without this file the same buttons send the
// same form.
const savesAfterMs = 3000;
const triesAgainAfterMs = 15_000;

/** Saves the fields some seconds after the last change, unless the draft was changed elsewhere meanwhile. */
function keepSaved(form) {
  const version = form.elements.namedItem('version');
  const files = form.elements.namedItem('files');
  let written = textsOf(form);
  let timer;
  let underWay;
  let isLeaving = false;
  let isConflict = false;

  const isChanged = () => textsOf(form) !== written;

  function say(sentence) {
    for (const line of document.querySelectorAll('[data-save-status]')) line.textContent = sentence;
  }

  function schedule(ms = savesAfterMs) {
    clearTimeout(timer);
    if (!isConflict && !isLeaving) timer = setTimeout(save, ms);
  }

  function save() {
    clearTimeout(timer);
    if (underWay || isConflict || isLeaving || !isChanged()) return;
    underWay = attempt(textsOf(form));
  }

  async function attempt(texts) {
    const isLost = await put(texts);
    underWay = undefined;
    // What was refused is refused again until it is changed.
    if (isLost) schedule(triesAgainAfterMs);
    else if (textsOf(form) !== texts) schedule();
  }

  /** True when there was no answer that lasts. */
  async function put(texts) {
    const fields = new FormData(form);
    fields.delete('files');
    fields.set('operation', 'save');
    const headers = { accept: 'application/json', 'if-match': `"${version.value}"` };
    const answer = await fetch(form.action, { method: 'POST', body: fields, headers }).catch(() => undefined);
    if (answer?.ok) {
      written = texts;
      version.value = tagOf(answer);
      say(`Saved ${format.formatClock(Date.now())} UTC`);
      return false;
    }
    isConflict = answer?.status === 412;
    say(`Not saved: ${await reasonOf(answer)}`);
    return answer === undefined || answer.status === 429 || answer.status >= 500;
  }

  form.addEventListener('input', () => {
    if (!underWay) schedule();
  });
  document.addEventListener('visibilitychange', () => document.hidden && save());
  window.addEventListener('beforeunload', (event) => {
    if (!isLeaving && (isChanged() || files.files.length > 0)) event.preventDefault();
  });

  return {
    isUnderWay: () => underWay !== undefined,
    done: () => underWay,
    pause: () => {
      isLeaving = true;
      clearTimeout(timer);
    },
    goOn: () => {
      isLeaving = false;
      if (isChanged()) schedule();
    },
  };
}

/** The fields that are saved. */
const textsOf = (form) =>
  JSON.stringify([...new FormData(form)].filter(([name]) => name !== 'files' && name !== 'version'));

const tagOf = (answer) => (answer.headers.get('etag') ?? '').replace(/^W\//, '').replaceAll('"', '');

async function reasonOf(answer) {
  if (answer === undefined) return 'the server does not answer. It is tried again.';
  if (answer.status === 412) return 'it was changed elsewhere. Save shows both versions.';
  const { detail, title, errors = [] } = await answer.json().catch(() => ({}));
  const [first] = errors;
  if (first === undefined) return detail ?? title ?? `status ${answer.status}`;
  const label = document.querySelector(`label[for="field-${first.pointer.replace('/', '')}"]`);
  return `${label?.firstChild.textContent.trim() ?? first.pointer}: ${first.message}.`;
}

function send({ form, button, bar, status, saving }) {
  const request = new XMLHttpRequest();
  const ended = (sentence) => {
    bar.hidden = true;
    button.disabled = false;
    status.textContent = sentence;
    saving.goOn();
  };
  request.open('POST', form.action);
  request.setRequestHeader('Accept', 'text/html');
  request.upload.addEventListener('progress', ({ loaded, total }) => {
    bar.value = total > 0 ? (loaded / total) * 100 : 0;
    status.textContent = `${Math.round(bar.value)} % sent`;
  });
  request.addEventListener('load', () => {
    if (request.status < 400) location.assign(request.responseURL);
    else if (request.status === 412) submitPlainly(form, button);
    else ended(reason(request));
  });
  request.addEventListener('error', () => ended('The connection was lost. Nothing was attached.'));
  bar.value = 0;
  bar.hidden = false;
  button.disabled = true;
  status.textContent = 'Sending';
  const fields = new FormData(form);
  fields.set(button.name, button.value);
  request.send(fields);
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

for (const form of document.querySelectorAll('[data-draft]')) {
  const bar = form.querySelector('[data-upload-progress]');
  const status = form.querySelector('[data-upload-status]');
  const saving = keepSaved(form);
  form.addEventListener('submit', (event) => {
    const button = event.submitter;
    // A version that is being saved is the one that the form has to name.
    if (saving.isUnderWay()) {
      event.preventDefault();
      void saving.done().then(() => form.requestSubmit(button));
      return;
    }
    saving.pause();
    if (!button?.matches('[data-upload-button]')) return;
    event.preventDefault();
    send({ form, button, bar, status, saving });
  });
}
