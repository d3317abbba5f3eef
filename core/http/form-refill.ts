import type * as htmlparser2 from 'htmlparser2';
import type { InvalidPlace, ProblemDetails } from '../problem.js';
import type { Fields } from './validation.js';

/** Hidden field of the forms on such a page: where it came from, as the answer to a form has another address. */
export const pageField = '_page';

export interface RefusedFields {
  /** Path and query that the form was sent to. */
  readonly action: string;
  readonly fields: Fields;
  readonly details: ProblemDetails;
  /** Path and query of the page. */
  readonly page: string;
}

type Library = typeof htmlparser2;
type Element = ReturnType<Library['DomUtils']['getElementsByTagName']>[number];

/**
 * The page with its form as it was sent: what was written is in the fields (but for passwords and files, which no page
 * repeats), and each message is beside its field, or on top of the form. Undefined when the page has no such form.
 */
export async function refillForm(html: string, refused: RefusedFields): Promise<string | undefined> {
  // Loaded when it is wanted: most starts see no form that is refused.
  const library = await import('htmlparser2');
  const { DomUtils } = library;
  const document = library.parseDocument(html);
  const forms = DomUtils.getElementsByTagName('form', document)
    .filter(({ attribs }) => attribs['method']?.toLowerCase() === 'post')
    .map((element) => new Form(element, library));
  const form = forms
    .filter((one) => one.takes(refused))
    .toSorted((a, b) => b.known(refused.fields) - a.known(refused.fields))[0];
  if (form === undefined) return undefined;
  form.fill(refused.fields);
  form.explain(refused.details);
  for (const one of forms) one.keepPage(refused.page);
  return DomUtils.getOuterHTML(document, { encodeEntities: 'utf8' });
}

class Form {
  readonly #form: Element;
  readonly #library: Library;
  readonly #controls: readonly Element[];

  constructor(form: Element, library: Library) {
    this.#form = form;
    this.#library = library;
    this.#controls = library.DomUtils.getElementsByTagName(
      (tag) => ['input', 'select', 'textarea'].includes(tag),
      form,
    );
  }

  /** Whether the fields were sent by a form like this one: to the same address, by the same method. */
  takes({ action, fields }: RefusedFields): boolean {
    const path = (address: string) => address.split(/[?#]/, 1)[0];
    const method = this.#named('_method')[0]?.attribs['value'];
    return (
      path(this.#form.attribs['action'] ?? '') === path(action) &&
      (method === undefined || method === fields['_method'])
    );
  }

  /** How many of the fields it has. */
  known(fields: Fields): number {
    return Object.keys(fields).filter((name) => this.#named(name).length > 0).length;
  }

  fill(fields: Fields): void {
    for (const control of this.#controls) {
      const { name = '', type = 'text' } = control.attribs;
      const written = [fields[name] ?? []].flat();
      if (type === 'checkbox' || type === 'radio') {
        setFlag(control, 'checked', written.includes(control.attribs['value'] ?? 'on'));
      } else if (written[0] !== undefined && !['hidden', 'password', 'file'].includes(type)) {
        this.#write(control, written[0]);
      }
    }
  }

  #write(control: Element, text: string): void {
    const { DomUtils } = this.#library;
    if (control.name === 'input') control.attribs['value'] = text;
    else if (control.name === 'textarea') {
      // Browsers leave the first line end out.
      this.#setText(control, `\n${text}`);
    } else {
      for (const option of DomUtils.getElementsByTagName('option', control)) {
        setFlag(option, 'selected', (option.attribs['value'] ?? DomUtils.textContent(option)) === text);
      }
    }
  }

  /** Messages beside their fields. What belongs to no field, or to a list of ticks, is said on top. */
  explain({ detail, errors = [] }: ProblemDetails): void {
    const others: InvalidPlace[] = [];
    const wrong = new Map<Element, string[]>();
    for (const place of errors) {
      const control = this.#named(fieldOf(place)).find(({ attribs }) => attribs['type'] !== 'hidden');
      if (control === undefined || isTick(control)) others.push(place);
      else wrong.set(control, [...(wrong.get(control) ?? []), messageOf(place)]);
    }
    for (const [control, messages] of wrong) this.#blame(control, messages.join(' '));
    const note = wrong.size === 0 || others.length > 0 ? this.#note(detail, others) : undefined;
    const first = note ?? [...wrong.keys()][0] ?? this.#form;
    setFlag(first, 'autofocus', true);
    for (const around of ancestorsOf(first)) if (around.name === 'details') setFlag(around, 'open', true);
  }

  #blame(control: Element, message: string): void {
    const { DomUtils } = this.#library;
    const id = `${control.attribs['id'] ?? `refused-${control.attribs['name'] ?? ''}`}-error`;
    const described = (control.attribs['aria-describedby'] ?? '').split(' ').filter((one) => one !== '' && one !== id);
    control.attribs['aria-invalid'] = 'true';
    control.attribs['aria-describedby'] = [id, ...described].join(' ');
    const before = DomUtils.getElementById(id, this.#form);
    if (before !== null) DomUtils.removeElement(before);
    const error = this.#element('<p class="error"></p>', message);
    error.attribs['id'] = id;
    const frame = frameOf(control);
    if (frame === undefined) DomUtils.append(control, error);
    else DomUtils.appendChild(frame, error);
  }

  /** What is wrong with the form as a whole. */
  #note(detail: string | undefined, others: readonly InvalidPlace[]): Element {
    const { DomUtils } = this.#library;
    const note = this.#element('<div class="note" data-tone="bad" role="alert" tabindex="-1"></div>');
    const texts = others.length === 0 ? [sentence(detail ?? 'This cannot be done')] : others.map(messageOf);
    for (const text of texts) DomUtils.appendChild(note, this.#element('<p></p>', text));
    DomUtils.prependChild(this.#form, note);
    return note;
  }

  keepPage(page: string): void {
    for (const before of this.#named(pageField)) this.#library.DomUtils.removeElement(before);
    const field = this.#element(`<input type="hidden" name="${pageField}">`);
    field.attribs['value'] = page;
    this.#library.DomUtils.prependChild(this.#form, field);
  }

  #named(name: string): readonly Element[] {
    return this.#controls.filter(({ attribs }) => attribs['name'] === name);
  }

  #element(markup: string, text?: string): Element {
    const { DomUtils, parseDocument } = this.#library;
    const [element] = DomUtils.getElementsByTagName(() => true, parseDocument(markup));
    if (element === undefined) throw new Error('The markup has no element.');
    if (text !== undefined) this.#setText(element, text);
    return element;
  }

  #setText(element: Element, text: string): void {
    const { DomUtils, parseDocument } = this.#library;
    element.children = [];
    const [node] = parseDocument('-').children;
    if (node === undefined || !('data' in node)) return;
    node.data = text;
    DomUtils.appendChild(element, node);
  }
}

function ancestorsOf(element: Element): readonly Element[] {
  const ancestors: Element[] = [];
  for (let node = element.parent; node !== null; node = node.parent) if ('attribs' in node) ancestors.push(node);
  return ancestors;
}

const frameOf = (control: Element): Element | undefined =>
  ancestorsOf(control).find(({ attribs }) => attribs['class']?.split(' ').includes('field'));

/** One of a list, with no place beside it. */
const isTick = (control: Element): boolean => control.attribs['type'] === 'checkbox' && frameOf(control) === undefined;

function setFlag({ attribs }: Element, name: string, on: boolean): void {
  if (on) attribs[name] = '';
  else delete attribs[name];
}

/** `/aliases/0` → `aliases`: the field that a place of the body is written in. */
const fieldOf = ({ pointer }: InvalidPlace): string =>
  (pointer.replace(/^\//, '').split('/')[0] ?? '').replaceAll('~1', '/').replaceAll('~0', '~');

/** What is wrong in a field, with the place in it when what was written is a structure. */
function messageOf({ pointer, message }: InvalidPlace): string {
  const inside = pointer.replace(/^\/?[^/]*(?:\/\d+$)?/, '');
  return sentence(inside === '' ? message : `${inside}: ${message}`);
}

const sentence = (text: string): string => {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
};
