import type { Page } from 'playwright-core';
import { overflow } from './browser.js';

/** One thing that can be done with a button: as the page is, with nothing ticked, or with another option of a list chosen. */
export interface Press {
  /** The same for the same control on other pages of the kind. */
  readonly key: string;
  readonly button: number;
  readonly ticked: boolean;
  /** Of a list in the same form: its index among all of the page, and the index of the option. */
  readonly choice: { readonly select: number; readonly option: number } | null;
  /** The bar is the same on each page. */
  readonly isOfEveryPage: boolean;
  readonly submits: boolean;
  /** htmx sends the form, and the page stays. */
  readonly stays: boolean;
  readonly changes: boolean;
  readonly destroys: boolean;
}

/** What a form was answered with, behind redirects. */
export interface PlainAnswer {
  readonly status: number;
  readonly said: string;
}

/** What the scripts below share. A label or an address is written without what differs from one message, user or moment to the next. */
const shared = `
  const buttons = [...document.querySelectorAll('button')];
  const selects = [...document.querySelectorAll('select')];
  const kind = (text) => text.replace(/\\s+/g, ' ').trim().replace(/[^\\s/=]*\\d[^\\s/]*/g, '#').replace(/(users|store|folders|destinations)\\/[^/?]+(\\/[^/?]+(?=\\/folders))?/g, '$1/#').slice(0, 120);
  // A field may be called method.
  const methodOf = (form) => form.getAttribute('method') ?? 'get';
  const ticks = (form) => [...form.querySelectorAll('input[name="messageIds"][type="checkbox"], input[name="uids"][type="checkbox"]')];`;

/** An option of a list is chosen for the button behind the list, or the last of its form; what a bulk action is for, with each action. */
const listPresses = `(() => {${shared}
  return buttons.flatMap((button, index) => {
    if (button.disabled || button.hidden || button.closest('dialog') !== null) return [];
    const { form } = button;
    const action = form === null ? '' : kind((button.getAttribute('formaction') ?? form.getAttribute('action')) + ' ' + (form.elements.namedItem('_method')?.value ?? methodOf(form)));
    const press = (how, ticked = true, choice = null) => ({
      key: [kind(button.textContent), action, how].join(' | '), button: index, ticked, choice,
      isOfEveryPage: button.closest('header.bar, footer.foot') !== null,
      submits: form !== null && button.type !== 'button', stays: form !== null && form.hasAttribute('hx-post'), changes: form !== null && methodOf(form) === 'post', destroys: button.dataset.tone === 'bad' });
    if (form === null || button.type === 'button') return [press('pressed')];
    const own = buttons.filter((one) => one.form === form);
    const isFor = (select) => select.name === 'filter' || button === (own.find((one) => select.compareDocumentPosition(one) & 4) ?? own.at(-1));
    const choices = selects.flatMap((select, place) => select.form !== form || !isFor(select) ? [] : [...select.options].flatMap((option, at) =>
      option.selected ? [] : [press(select.name + '=' + kind(option.text), true, { select: place, option: at })]));
    return [...(ticks(form).length > 0 ? [press('nothing ticked', false)] : []), press('as it is'), ...choices];
  });
})()`;

/** Fills the form as an operator would, ticks and chooses; false when the browser would not send the form. */
const prepare = (press: Press) => `(() => {${shared}
  const { button: index, ticked, choice } = ${JSON.stringify(press)};
  document.querySelectorAll('main details').forEach((one) => { one.open = true; });
  const button = buttons[index];
  const { form } = button;
  if (form === null) return true;
  form.reset();
  const unique = Date.now().toString(36);
  const texts = { username: 'user' + unique + '@localhost', name: 'Folder ' + unique, newName: 'Copy ' + unique, password: 'a long enough password',
    to: 'ann@localhost', mail: 'ann@dead.example', rcpt: 'bob@dead.example', reply: '451 4.7.1 later', destination: 'other.example' };
  for (const field of form.elements) {
    if (field.name === 'case') field.value = field.value.replace('example.net', 'dead.example');
    else if (field.type === 'file') {
      // Other buttons of a draft say that a file was chosen and not attached.
      if (!field.required && !button.matches('[data-upload-button]')) continue;
      const files = new DataTransfer();
      files.items.add(new File(['From: a@b.example\\r\\nSubject: file ' + unique + '\\r\\n\\r\\nx\\r\\n'], unique + '.eml', { type: 'message/rfc822' }));
      field.files = files.files;
    } else if (field.type !== 'hidden' && texts[field.name] && (field.name === 'newName' || !field.value)) field.value = texts[field.name];
  }
  ticks(form).forEach((box, at) => { box.checked = ticked && at === 0; });
  if (choice !== null) {
    selects[choice.select].selectedIndex = choice.option;
    selects[choice.select].dispatchEvent(new Event('change', { bubbles: true }));
  }
  return button.type === 'button' || form.checkValidity();
})()`;

const isConfirmation = `document.querySelector('main form input[name="confirm"][value="yes"]') !== null`;
const confirmButton = 'main form:has(input[name="confirm"][value="yes"]) button';

/** What can be pressed on the page that is shown. What destroys comes last. */
export async function pressesOf(page: Page): Promise<readonly Press[]> {
  const found = await page.evaluate<Press[]>(listPresses);
  return found.toSorted((a, b) => Number(a.destroys) - Number(b.destroys));
}

/** Presses on the page that is shown, and says yes to what it asks then. Returns what was wrong. */
export async function perform(page: Page, press: Press): Promise<readonly string[]> {
  if (!(await page.evaluate<boolean>(prepare(press)))) return [];
  const button = page.locator('button').nth(press.button);
  if (press.stays)
    await Promise.all([page.waitForResponse((answer) => answer.request().method() === 'POST'), button.click()]);
  else if (press.submits) await Promise.all([page.waitForEvent('load'), button.click()]);
  else await button.click();
  for (let asked = 0; await page.evaluate<boolean>(isConfirmation); asked += 1) {
    if (asked === 3) return ['asks without end'];
    await Promise.all([page.waitForEvent('load'), page.locator(confirmButton).click()]);
  }
  const pixels = await overflow(page);
  return pixels > 0 ? [`leads to ${page.url()}, which is ${pixels} pixels wider than the window`] : [];
}

/** The form and its confirmation as the browser posts them without JavaScript, without showing the pages. Null when the browser would not send it. */
export async function submitPlainly(page: Page, press: Press): Promise<PlainAnswer | null> {
  if (!(await page.evaluate<boolean>(prepare(press)))) return null;
  return page.evaluate<PlainAnswer>(`(async () => {
    const send = async (form, button) => {
      const data = new FormData(form, button);
      const url = new URL(button.getAttribute('formaction') ?? form.getAttribute('action') ?? '', location.href);
      const isMultipart = (button.getAttribute('formenctype') ?? form.getAttribute('enctype')) === 'multipart/form-data';
      const fields = new URLSearchParams([...data].map(([name, value]) => [name, typeof value === 'string' ? value : value.name]));
      const method = form.getAttribute('method') ?? 'get';
      if (method === 'get') url.search = fields;
      return fetch(url, { method, headers: { Accept: 'text/html' }, ...(method === 'post' && { body: isMultipart ? data : fields }) });
    };
    const button = document.querySelectorAll('button')[${press.button}];
    let answer = await send(button.form, button);
    for (let asked = 0; asked < 3; asked += 1) {
      const shown = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const yes = shown.querySelector(${JSON.stringify(confirmButton)});
      if (yes === null) return { status: answer.status, said: shown.querySelector('main')?.textContent ?? '' };
      answer = await send(yes.form, yes);
    }
    return { status: 500, said: 'It asks without end.' };
  })()`);
}
