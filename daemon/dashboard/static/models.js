// The models: a switch each, how each stands, and why it does not speculate where it does not.

import { $, facts, h, say, show } from "./dom.js";
import { ago, bytes, count, seconds, share, widths } from "./format.js";
import { post } from "./connection.js";
import { announce } from "./notice.js";

const WORDS = {
  active: "Speculates", parked: "Guesses paused", plain: "Decodes plainly", off: "Switched off",
  stock: "On the stock server", cannot: "Cannot speculate", ready: "Ready, not loaded", unknown: "Not in the store",
};
const MEANINGS = {
  active: "Loaded. Guesses are tried wherever they save time.",
  parked: "That end was written plainly; the next answer tries guesses again.",
  ready: "It is loaded with its first request, and will speculate.",
};
const cards = new Map();

export function models(state) {
  const list = $("model-list");
  show($("models-empty"), state.models.length === 0);
  const names = new Set(state.models.map((model) => model.name));
  for (const [name, card] of cards) {
    if (!names.has(name)) {
      card.element.remove();
      cards.delete(name);
    }
  }
  const order = [...state.models].sort((a, b) => Boolean(b.runner) - Boolean(a.runner) || a.name.localeCompare(b.name));
  order.forEach((model, place) => {
    if (!cards.has(model.name)) cards.set(model.name, made(model));
    const card = cards.get(model.name);
    if (list.children[place] !== card.element) list.insertBefore(card.element, list.children[place] ?? null);
    card.update(model, state.runners.find((runner) => runner.id === model.runner), state.may_change);
  });
  problems(state.problems);
  master(state);
}

function made(model) {
  const title = h("h3", { id: `model-${cards.size}-${Date.now()}` }, model.name);
  const badge = h("span", { class: "state" });
  const why = h("p", { class: "why" });
  const list = h("dl", { class: "facts" });
  const button = h("button", { type: "button", role: "switch", class: "switch", "aria-label": `Speculation for ${model.name}` });
  button.addEventListener("click", () => flip(button, model.name));
  const element = h("li", { class: "model" },
    h("header", {}, h("div", {}, title, badge), button), why,
    h("details", {}, h("summary", {}, "Details"), list));
  element.dataset.model = model.name;
  return {
    element,
    update(now, runner, mayChange) {
      say(badge, WORDS[now.state] ?? now.state);
      badge.className = `state ${now.state}`;
      say(why, sentence(now));
      turn(button, now.enabled, mayChange);
      facts(list, about(now, runner));
    },
  };
}

function sentence(model) {
  const why = model.why ? model.why[0].toUpperCase() + model.why.slice(1) : "";
  return [why, MEANINGS[model.state]].filter(Boolean).join(". ");
}

function about(model, runner) {
  const store = model.store ?? {};
  return [
    ["Loaded", runner ? `${ago(runner.started)}, process ${runner.pid}, ${bytes(runner.memory)} of memory` : "no"],
    ["Answers", runner ? `${count(runner.totals.requests)}, ${seconds(runner.totals.saved_seconds)} saved, ${share(runner.totals.acceptance)} of guesses right` : ""],
    ["Drafters", runner ? runner.drafters.map(drafter).join("; ") : model.drafters.join(", ")],
    ["Lane", runner ? `${runner.lane}; ${widths(runner.widths)} tokens at once` : ""],
    ["Same tokens as", { stock: "plain Ollama's", lane: "without speculation", none: "nothing: not shown to be equal" }[(runner ?? model).parity]],
    ["Certificate", store.certificate || (model.store ? "none yet" : "")],
    ["Verdict", store.verdict ? store.verdict + (store.reason ? `: ${store.reason}` : "") : ""],
    ["May narrow it", (store.limits ?? []).join("; ")],
    ["On stock", model.stock ? `${model.stock.reason} (since ${ago(model.stock.since)})` : ""],
    ["Weights", model.store ? `${[store.parameters, store.quantization, bytes(store.size)].filter(Boolean).join(", ")}, ${store.pinned ? "pinned: checked against their digest" : "not hashed yet"}` : ""],
    ["Context", store.context_length ? `up to ${count(store.context_length)} tokens` : ""],
    ["Long prompts", runner?.prompts ? `read ${runner.prompts}` : ""],
    ["Digest", store.digest],
  ];
}

const drafter = (one) => one.name + (one.state && one.state !== "ready" ? ` (${one.state})` : "") + (one.about ? `: ${one.about}` : "");

function problems(list) {
  const element = $("problems");
  show(element, list.length > 0);
  const key = JSON.stringify(list);
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  element.replaceChildren(...list.map((text) => h("li", {}, `Problem: ${text}`)));
}

function master(state) {
  const button = $("master");
  turn(button, state.config.enabled, state.may_change);
  button.onclick ??= () => flip(button, null);
}

// The daemon notices a change of the file a moment later: until then it tells of the old one.
const NOTICED = 5000; // ms
const wanted = new WeakMap();

function turn(button, on, mayChange) {
  if (button.dataset.busy) return;
  const wish = wanted.get(button);
  if (wish && wish.enabled !== on && Date.now() < wish.until) return;
  wanted.delete(button);
  const checked = String(on);
  if (button.getAttribute("aria-checked") !== checked) button.setAttribute("aria-checked", checked);
  if (button.disabled === mayChange) button.disabled = !mayChange;
  const title = mayChange ? "" : "Run `pilotfish open` to change this";
  if (button.title !== title) button.title = title;
}

async function flip(button, model) {
  const enabled = button.getAttribute("aria-checked") !== "true";
  button.dataset.busy = "1";
  try {
    const edit = await (await post("switch", { enabled, model })).json();
    button.setAttribute("aria-checked", String(enabled));
    wanted.set(button, { enabled, until: Date.now() + NOTICED });
    const others = edit.exceptions.length ? ` Not for ${edit.exceptions.join(", ")}: a setting of their own says otherwise.` : "";
    announce(`${model ?? "Speculation"} is ${enabled ? "on" : "off"} from the next request on, by ${edit.path}.${others}`);
  } catch (error) {
    announce(`That did not work: ${error.message}`);
  } finally {
    delete button.dataset.busy;
  }
}
