// Draws the charts anew with a cursor and zoom. Without this file they stand there as pictures.
const region = document.querySelector('[data-charts]');
const { period, seconds } = region.dataset;
const height = 132;
const dashes = [undefined, [6, 3], [2, 3], [1, 4]];
const drawn = new Map();
let zoom = null;
/** Seconds, by the clock of the server. */
let now = 0;

/** Steps of an axis of durations, from 1 ms to 10 days: whole units, so that no label says 13.9 h. */
const steps = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600, 7200, 14400,
  43200, 86400, 172800, 432000, 864000,
];
const styleOf = (element, name) => getComputedStyle(element)[name];

/** The legend says the values under the cursor, and the newest when there is none. */
function tell(plot, chart, section) {
  const { idx } = plot.cursor;
  const values = [...section.querySelectorAll('.legend strong')];
  for (const [index, element] of values.entries()) {
    element.dataset.last ??= element.textContent;
    const value = idx === null ? undefined : plot.data[index + 1]?.[idx];
    element.textContent =
      idx === null ? element.dataset.last : typeof value === 'number' ? format.formatValue(chart.unit, value) : '–';
  }
  section.querySelector('[data-time]').textContent =
    idx === null ? '' : `${format.formatClock(plot.data[0][idx] * 1000, 'seconds')} UTC`;
}

function show(range) {
  zoom = range;
  for (const { plot, reset } of drawn.values()) {
    plot.setScale('x', range ?? whole());
    reset.hidden = range === null;
  }
}

const whole = () => ({ min: now - Number(seconds), max: now });

/** Places of values without neighbours: no line leads through them. */
const alone = (values) =>
  values.flatMap((value, index) =>
    value !== null && values[index - 1] == null && values[index + 1] == null ? [index] : [],
  );

function optionsOf(chart, section, place) {
  const ink = styleOf(section.querySelector('.plot-top'), 'color');
  const swatches = [...section.querySelectorAll('.swatch')];
  const axis = { stroke: ink, font: '12px system-ui', ticks: { show: false }, grid: { stroke: ink, width: 0.2 } };
  return {
    width: place.clientWidth,
    height,
    legend: { show: false },
    padding: [8, 8, 0, 0],
    cursor: {
      sync: { key: 'charts' },
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => show(null) },
    },
    scales: { y: { range: (_plot, _least, most) => [0, most > 0 ? most * 1.05 : 1] } },
    axes: [
      { ...axis, space: 60, size: 24, values: (_plot, times) => times.map((time) => format.formatClock(time * 1000)) },
      {
        ...axis,
        size: 62,
        space: 30,
        ...(chart.unit === 'seconds' && { incrs: steps }),
        values: (_plot, values) => values.map((value) => format.formatValue(chart.unit, value)),
      },
    ],
    series: [
      {},
      ...chart.series.map(({ label }, index) => ({
        label,
        width: 1.75,
        stroke: swatches[index] && styleOf(swatches[index], 'backgroundColor'),
        dash: dashes[index],
        points: { show: false, size: 4, filter: (plot, place) => alone(plot.data[place]) },
      })),
    ],
    hooks: {
      setCursor: [(plot) => tell(plot, chart, section)],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < 4) return;
          const [min, max] = [plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')];
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          show({ min, max });
        },
      ],
    },
  };
}

const dataOf = (chart, times) => [
  times.map((time) => Date.parse(time) / 1000),
  ...chart.series.map((one) => one.values),
];

function draw(chart, times) {
  const section = document.querySelector(`[data-chart="${chart.id}"]`);
  if (section === null) return;
  const known = drawn.get(chart.id);
  if (known !== undefined) {
    known.plot.setData(dataOf(chart, times), false);
    known.plot.setScale('x', zoom ?? whole());
    return;
  }
  const place = section.querySelector('[data-plot]');
  place.hidden = false;
  section.dataset.drawn = '';
  const plot = new uPlot(optionsOf(chart, section, place), dataOf(chart, times), place);
  plot.setScale('x', zoom ?? whole());
  const reset = section.querySelector('[data-whole]');
  reset.addEventListener('click', () => show(null));
  const width = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height }));
  width.observe(place);
  drawn.set(chart.id, { plot, reset, width });
}

async function refresh() {
  const answer = await fetch(`/metrics/history?period=${period}`, { headers: { accept: 'application/json' } });
  if (!answer.ok) return;
  now = Date.parse(answer.headers.get('date')) / 1000;
  const { times, charts } = await answer.json();
  for (const chart of charts) draw(chart, times);
}

/** Colours are read when a chart is made. */
function redraw() {
  for (const { plot, width } of drawn.values()) {
    width.disconnect();
    plot.destroy();
  }
  drawn.clear();
  void refresh();
}

void refresh();
// The page itself is asked for again every ten seconds; what it says has just been replaced.
document.addEventListener('htmx:afterOnLoad', () => void refresh());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
document.querySelector('[data-theme-switch]')?.addEventListener('click', () => setTimeout(redraw));
