import { matches, type Rule } from './rule.js';
import type { SourceFile } from './source-file.js';

/** The template with its statements and comments gone and its values as one letter, of the same length. */
function markup({ text }: SourceFile): string {
  return text
    .replace(/\{#[\s\S]*?#\}|\{%[\s\S]*?%\}/g, (whole) => whole.replace(/[^\n]/g, ' '))
    .replace(/\{\{[\s\S]*?\}\}/g, (whole) => whole.replace(/[^\n]/g, 'x'));
}

const tag = /<[a-zA-Z](?:[^>"']|"[^"]*"|'[^']*')*>/g;

/** Tags in which `pattern` is found, their attribute values blanked out. */
function tags(pattern: RegExp): Rule['faults'] {
  return (file) => {
    const bare = markup(file).replace(tag, (whole) =>
      whole.replace(/"[^"]*"|'[^']*'/g, (value) => `"${value.slice(2).replace(/[^\n]/g, ' ')}"`),
    );
    return [...bare.matchAll(tag)]
      .filter((match) => pattern.test(match[0]))
      .map((match) => `line ${bare.slice(0, match.index).split('\n').length}: ${match[0].replace(/\s+/g, ' ')}`);
  };
}

const find =
  (pattern: RegExp): Rule['faults'] =>
  (file) =>
    matches(file.text, pattern);

export const viewRules: readonly Rule[] = [
  {
    title: 'no view declares a value safe or switches escaping off',
    faults: find(/\|\s*safe\b|\bautoescape\s+false|\{%-?\s*raw\b/g),
    breach: { path: 'views/x.njk', text: '<p>{{ subject | safe }}</p>' },
    allowed: { path: 'views/x.njk', text: '<p>safe: {{ subject }}</p>' },
  },
  {
    title: 'no view has a script or a style of its own',
    faults: (file) => [
      ...tags(/^<style\b|\sstyle\s*=|\son\w+\s*=|\shx-on|\shx-vals\s*=\s*"js:/i)(file),
      ...matches(markup(file), /<script\b(?![^>]*\ssrc=)[^>]*>|javascript:/gi),
    ],
    breach: { path: 'views/x.njk', text: '<button type="button" onclick="go()">Go</button>' },
    allowed: { path: 'views/x.njk', text: '<p title="style = none">{% if on == 1 %}x{% endif %}</p>' },
  },
  {
    title: 'views quote every attribute',
    faults: tags(/=\s*[^\s"'>]/),
    breach: { path: 'views/x.njk', text: '<a href={{ url }}>x</a>' },
    allowed: { path: 'views/x.njk', text: '<a href="{{ url }}?a=b" hidden>{{ a }} = b</a>' },
  },
  {
    title: 'each element that asks by htmx says where the answer goes and how',
    faults: (file) =>
      tags(/\shx-(?:get|post|put|patch|delete)\b/)(file).filter(
        (found) => !/\shx-target\b/.test(found) || !/\shx-swap\b/.test(found),
      ),
    breach: { path: 'views/x.njk', text: '<a href="/x" hx-get="/x" hx-target="#list">x</a>' },
    allowed: { path: 'views/x.njk', text: '<a href="/x" hx-get="/x" hx-target="#list" hx-swap="outerHTML">x</a>' },
  },
  {
    title: 'a form has one address: not every browser lets a button name another one',
    faults: tags(/\sform(?:action|method|enctype)\s*=/),
    breach: { path: 'views/x.njk', text: '<button type="submit" formaction="/x">x</button>' },
    allowed: { path: 'views/x.njk', text: '<button type="submit" name="operation" value="formaction">x</button>' },
  },
  {
    title: 'views load nothing from elsewhere',
    faults: (file) =>
      matches(markup(file), /<(?:script|link|img|iframe|source)\b[^>]*\s(?:src|href)\s*=\s*["'](?:https?:)?\/\//gi),
    breach: { path: 'views/x.njk', text: '<script src="https://cdn.example/htmx.js"></script>' },
    allowed: { path: 'views/x.njk', text: `<script src="{{ asset('htmx.min.js') }}" defer></script>` },
  },
];
