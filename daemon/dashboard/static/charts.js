// uPlot, in the page's colours. Every chart has a table beside it with the same numbers.

const HEIGHT = 220; // px
const drawn = new Map();
const dark = matchMedia("(prefers-color-scheme: dark)");

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const PALETTE = ["--sea", "--amber", "--focus", "--red", "--soft"];

function axis(extra = {}) {
  return { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, font: "12px system-ui", ...extra };
}

// Made anew only when the kind of data is another, or the colours are.
function put(element, key, make, data) {
  const full = `${key} ${dark.matches}`;
  const existing = drawn.get(element);
  if (existing && existing.key === full) {
    if (JSON.stringify(existing.data) !== JSON.stringify(data)) existing.chart.setData(data);
    existing.data = data;
    return;
  }
  existing?.chart.destroy();
  const chart = new uPlot({ width: Math.max(240, element.clientWidth), height: HEIGHT, cursor: { show: false }, ...make() }, data, element);
  drawn.set(element, { key: full, chart, data, make });
}

new ResizeObserver((entries) => {
  for (const { target } of entries) {
    for (const element of target.querySelectorAll("figure > div")) {
      const chart = drawn.get(element)?.chart;
      if (chart && element.clientWidth && Math.abs(chart.width - element.clientWidth) > 1) chart.setSize({ width: element.clientWidth, height: HEIGHT });
    }
  }
}).observe(document.querySelector("main"));

dark.addEventListener("change", () => {
  for (const [element, { chart, data, make, key }] of [...drawn]) {
    chart.destroy();
    drawn.delete(element);
    put(element, key.replace(/ (true|false)$/, ""), make, data);
  }
});

function drawing(isMarks, i) {
  const points = { show: true, size: isMarks ? 11 : 6, ...(isMarks ? { width: 3 } : {}) };
  return isMarks ? { paths: () => null, points } : { width: 2, dash: i >= PALETTE.length ? [6, 4] : undefined, spanGaps: true, points };
}

export function bars(element, times, values) {
  const make = () => ({
    legend: { show: false },
    scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high)] } },
    axes: [axis(), axis({ size: 56, values: (_, ticks) => ticks.map((tick) => `${tick} s`) })],
    series: [{}, { label: "saved", stroke: colour("--sea"), fill: colour("--sea"), paths: uPlot.paths.bars({ size: [0.7, 40] }), points: { show: false } }],
  });
  put(element, "bars", make, [times, values]);
}

// `groups`: name -> [[x, y], ...], drawn as lines but for the one named `marks`, which is points; `from`: what the y axis
// begins at; `shown`: how a tick of it is written.
export function lines(element, groups, { x, marks = null, from = 0, to = null, shown = (tick) => String(tick), ticks = null }) {
  const xs = [...new Set(Object.values(groups).flatMap((points) => points.map(([at]) => at)))].sort((a, b) => a - b);
  const data = [xs, ...Object.values(groups).map((points) => xs.map((at) => points.find(([own]) => own === at)?.[1] ?? null))];
  const names = Object.keys(groups);
  const make = () => ({
    scales: { x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) }, y: { range: (_, low, high) => [Math.min(from, low), to ?? Math.max(from + 1, high * 1.05)] } },
    axes: [axis({ label: x, size: 30, labelSize: 22, labelGap: 0, labelFont: "12px system-ui", ...(ticks ? { splits: () => ticks } : {}) }), axis({ size: 52, values: (_, found) => found.map(shown) })],
    series: [{ label: x, value: (_, value) => value ?? "" }, ...names.map((label, i) => ({ label, stroke: colour(PALETTE[i % PALETTE.length]), ...drawing(label === marks, i), value: (_, value) => (value === null ? "" : shown(value)) }))],
    legend: { show: true, live: false },
  });
  put(element, JSON.stringify([names, x, ticks]), make, data);
}
