// What a loaded model's controller learned: how often guesses are right, and what checking them costs.

import { $, options, say, show, table } from "./dom.js";
import { count, share, steps, widths } from "./format.js";
import { lines } from "./charts.js";

const known = new Map(); // by runner

export function explained(message) {
  known.set(message.runner, message);
  draw();
}

export function present(runners) {
  const here = new Set(runners.map((runner) => runner.id));
  for (const id of known.keys()) if (!here.has(id)) known.delete(id);
  draw();
}

export function begin() {
  $("measured-model").addEventListener("change", draw);
}

function draw() {
  const select = $("measured-model");
  options(select, [...known].map(([id, { model }]) => [id, model]));
  const one = known.get(select.value)?.explained;
  const costs = one?.model_of_costs;
  const any = Boolean(costs) && costs.costs.length > 0;
  show($("measured-empty"), !any);
  show($("measured-content"), any);
  if (!any) return;
  positions(costs.positions ?? []);
  confidence(costs.acceptance);
  prices(costs.costs, one.lane, costs.rounds);
  say($("measured-note"), inUse(costs.rounds, one));
}

function grouped(rows, key, point) {
  const groups = {};
  for (const row of rows) (groups[key(row)] ??= []).push(point(row));
  return groups;
}

const place = ({ position: [low, high] }) => (high === null ? `${low} and later` : low === high ? `${low}` : `${low} to ${high}`);

function positions(rows) {
  const groups = grouped(rows, (row) => row.drafter, (row) => [row.position[0], row.rate]);
  lines($("position-chart"), groups, { x: "place in the proposal", to: 1, shown: share, ticks: [1, 2, 3, 5, 9] });
  table($("position-table"), "Guesses that were right, if all before them were", ["Drafter", "Place", "Right", "Seen"], rows.map((row) => [row.drafter, place(row), share(row.rate), count(Math.round(row.seen))]));
}

function confidence(rows) {
  const middle = ({ confidence: [low, high] }) => Math.round(50 * (low + high)) / 100;
  const groups = grouped(rows, (row) => row.drafter, (row) => [middle(row), row.rate]);
  const said = [...new Set(rows.map(middle))].sort((a, b) => a - b);
  if (said.length > 1) groups["as the drafter says"] = said.map((value) => [value, value]);
  lines($("confidence-chart"), groups, { x: "how sure the drafter is (share)", to: 1, shown: share });
  table($("confidence-table"), "Guesses that were right", ["Drafter", "It says", "Right", "Seen"], rows.map((row) => [row.drafter, `${share(row.confidence[0])} to ${share(row.confidence[1])}`, share(row.rate), count(Math.round(row.seen))]));
}

const IN_USE = "used in the last rounds";

function prices(rows, lane, rounds) {
  const alone = rows.filter((row) => (row.requests ?? 1) === 1 && row.plain_steps !== null);
  const context = ({ context: [low, high] }) => `context ${count(low)} to ${count(high)}`;
  const groups = grouped(alone, context, (row) => [row.width, row.plain_steps]);
  for (const points of Object.values(groups)) points.sort((a, b) => a[0] - b[0]);
  const at = rounds.at(-1)?.position ?? 0;
  const here = alone.filter(({ context: [low, high] }) => low <= at && at <= high);
  const used = new Set(rounds.map(({ width }) => width));
  const marked = here.filter(({ width }) => used.has(width)).map((row) => [row.width, row.plain_steps]);
  if (marked.length) groups[IN_USE] = marked;
  lines($("cost-chart"), groups, { x: "tokens checked at once", marks: IN_USE, from: 0, shown: (tick) => `${tick.toFixed(1)}×`, ticks: lane.widths });
  table($("cost-table"), "Costs in plain steps", ["Width", "Context", "Costs", "Measured"], alone.map((row) => [row.width, context(row).slice(8), steps(row.plain_steps), row.measured_here ? `${row.samples} times` : "by the certificate"]));
}

function inUse(rounds, one) {
  const used = {};
  for (const { width } of rounds) used[width] = (used[width] ?? 0) + 1;
  const shares = Object.entries(used).map(([width, times]) => `${width} (${share(times / rounds.length)})`);
  const lane = `Its lane allows ${widths(one.lane.widths)} tokens at once`;
  return shares.length ? `${lane}; the last ${rounds.length} rounds used ${shares.join(", ")}.` : `${lane}.`;
}
