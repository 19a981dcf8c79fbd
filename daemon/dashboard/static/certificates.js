// Certificates with their rows: which widths are alike, how far, and in which settings that was looked for.

import { $, h, show } from "./dom.js";
import { at, count, seconds, steps, widths } from "./format.js";
import { ask } from "./connection.js";

let shown = "";

export async function certificates() {
  const found = (await ask("certificates")).certificates;
  const key = JSON.stringify(found.map((one) => one.key));
  show($("certificates-empty"), found.length === 0);
  if (key === shown) return;
  shown = key;
  $("certificate-list").replaceChildren(...found.map((one) => (one.trouble ? broken(one) : certificate(one))));
}

const broken = (one) => h("article", { class: "certificate" }, h("h3", {}, one.key.slice(0, 12)), h("p", {}, `Ignored: ${one.trouble}`));

function certificate(one) {
  const context = one.lane.max_context ? `up to ${count(one.lane.max_context)} tokens` : "in the whole context";
  return h("article", { class: "certificate" },
    h("h3", {}, one.model),
    h("p", {}, `${widths(one.lane.widths)} tokens at once ${context}. ${one.lane.setting}.`),
    one.lane.reason ? h("p", {}, one.lane.reason) : null,
    h("p", { class: "note" }, `A plain step takes ${steps(one.plain_ratio)} stock's, a prompt ${steps(one.prompt_ratio)}; with guesses ${steps(one.expected_ratio)} is expected. Made ${at(Date.parse(one.created) / 1000)} in ${seconds(one.seconds)}${one.complete ? "" : ", time ran out"}.`),
    h("details", {}, h("summary", {}, "Rows and settings"),
      wrapped("Equal rows", rows(one.regimes)), wrapped("Settings tried", settings(one.settings)),
      h("ul", {}, ...one.findings.map((text) => h("li", {}, text)))));
}

const wrapped = (label, inside) => h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label }, inside);

function rows(regimes) {
  const all = [...new Set(regimes.flatMap((regime) => Object.keys(regime.rows)))].sort((a, b) => a - b);
  return h("table", {}, h("caption", {}, "Rows that were equal, by tokens at once"),
    head(["Context", ...all]),
    h("tbody", {}, ...regimes.map((regime) => h("tr", {}, h("td", {}, `${count(regime.start)} to ${count(regime.end)}`), ...all.map((width) => h("td", {}, count(regime.rows[width] ?? 0)))))));
}

function settings(list) {
  return h("table", {}, h("caption", {}, "Settings that were tried"), head(["Setting", "Alike", "Expected", "Divergence", ""]),
    h("tbody", {}, ...list.map((one) => h("tr", { class: one.chosen ? "chosen" : "" },
      h("td", { class: "words" }, one.setting + (one.chosen ? " (chosen)" : "")), h("td", {}, one.widths || "–"), h("td", {}, steps(one.expected_ratio)),
      h("td", {}, one.divergence === null ? "–" : one.divergence.toFixed(4)), h("td", { class: "words" }, one.trouble)))));
}

const head = (names) => h("thead", {}, h("tr", {}, ...names.map((name) => (name === "" ? h("td") : h("th", { scope: "col" }, name)))));
