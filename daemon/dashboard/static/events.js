// What happened: the last thousand things, the newest first.

import { $, h, options, show } from "./dom.js";
import { at } from "./format.js";
import { ask } from "./connection.js";

const WORDS = { loaded: "Loaded", unloaded: "Unloaded", stock: "Left to stock", state: "State", drafter: "Drafter", dropped: "Dropped", config: "Config", plugins: "Plugins", daemon: "Daemon" };
const FEW = 30;
const KEPT = 1000;
let all = [];
let wanted = FEW;

export async function events() {
  all = (await ask("events")).events;
  draw();
}

export function happened(event) {
  all = [...all, event].slice(-KEPT);
  draw();
}

export function begin() {
  $("event-kind").addEventListener("change", draw);
  $("event-model").addEventListener("change", draw);
  $("more-events").addEventListener("click", () => {
    wanted = KEPT;
    draw();
  });
}

function draw() {
  options($("event-kind"), [["", "everything"], ...[...new Set(all.map((one) => one.kind))].map((kind) => [kind, WORDS[kind] ?? kind])]);
  options($("event-model"), [["", "all models"], ...[...new Set(all.map((one) => one.model).filter(Boolean))].map((name) => [name, name])]);
  const kind = $("event-kind").value, model = $("event-model").value;
  const found = all.filter((one) => (!kind || one.kind === kind) && (!model || one.model === model)).reverse();
  show($("events-empty"), found.length === 0);
  show($("more-events"), found.length > wanted);
  $("event-list").replaceChildren(...found.slice(0, wanted).map(item));
}

function item(one) {
  const time = h("time", { datetime: new Date(1000 * one.at).toISOString() }, at(one.at));
  const said = one.model ? `${one.model}: ${one.text}` : one.text;
  return h("li", { "data-kind": one.kind }, time, h("span", { class: "kind" }, WORDS[one.kind] ?? one.kind), h("span", { class: "said" }, said));
}
