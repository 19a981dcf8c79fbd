// Requests as they run: the text with right guesses coloured, a strip of rounds, the rate now and the plain one.

import { $, h, say, show, svg } from "./dom.js";
import { count, rate, seconds, share } from "./format.js";

const SHOWN = 6; // requests, running ones first
const MOST = 32; // with those whose end was lost on the way
const SOON = 30; // ms; a tab that nobody looks at is given no frames to draw in, and would keep all that comes
const TEXT = 6000; // characters of each
const ROUNDS = 80; // of each, in the strip
const HEIGHT = 44; // of the strip, px
const known = new Map();
let waiting = new Set();
let frame = null;
let breaks = 0;

export function live(message) {
  for (const event of message.events) {
    if (event.kind === "lost") continue;
    const key = `${message.runner}/${event.request}`;
    if (!known.has(key)) known.set(key, made(message.model, event));
    known.get(key).take(event);
    waiting.add(key);
  }
  frame ??= setTimeout(draw, SOON);
}

// After a break numbers may begin anew: what was running goes by another name, and is only known to have been.
export function interrupted() {
  for (const [key, one] of [...known]) {
    if (one.ended) continue;
    one.lose();
    known.delete(key);
    known.set(`earlier ${breaks++}`, one);
  }
}

// A runner that is gone finishes nothing.
export function present(runners) {
  const here = new Set(runners.map((runner) => runner.id));
  for (const [key, one] of known) if (key.includes("/") && !here.has(key.split("/")[0])) one.lose();
}

function draw() {
  frame = null;
  for (const key of waiting) known.get(key)?.draw();
  waiting = new Set();
  const all = [...known.entries()];
  const over = (amount) => Math.max(0, all.length - amount);
  const surplus = [...all.filter(([, one]) => one.ended).slice(0, over(SHOWN)), ...all.slice(0, over(MOST))];
  for (const [key, one] of surplus) {
    one.element.remove();
    known.delete(key);
  }
  show($("requests-empty"), known.size === 0);
}

function made(model, first) {
  const about = h("p", { class: "about" });
  const state = h("p", { class: "about" });
  const text = h("div", { class: "text", tabindex: "0", role: "region", "aria-label": `Answer of ${model}` });
  const strip = svg("svg", { class: "strip", role: "img", preserveAspectRatio: "none", viewBox: `0 0 ${ROUNDS} ${HEIGHT}` });
  const rates = h("p", { class: "rates" });
  const now = h("strong"), plain = h("span"), right = h("span");
  rates.append(now, plain, right);
  const element = h("article", { class: "request" }, h("header", {}, h("h3", {}, model), state), about, text, strip, rates);
  $("request-list").prepend(element);
  const rounds = [];
  let shownRounds = 0, committed = 0, spent = 0, saved = 0, drafted = 0, accepted = 0, pending = [], size = 0, joined = Boolean(first.joined) || first.kind !== "opened";
  let said = "", end = null, told = false;

  return {
    element,
    ended: false,
    take(event) {
      if (event.kind === "opened") {
        said = `${event.client || "unknown"}, prompt of ${count(event.prompt_tokens)} tokens`;
        if (event.drafters.length === 0) said += ", no drafter";
      } else if (event.kind === "round") {
        committed += event.committed;
        spent += event.seconds;
        saved = event.saved_seconds;
        drafted += event.proposed;
        accepted += event.accepted;
        rounds.push(event);
        if (event.pieces) pending.push(...event.pieces);
        told ||= Boolean(event.pieces);
      } else if (event.kind === "ended") {
        end = event;
        this.ended = true;
      }
    },
    lose() {
      if (this.ended) return;
      this.ended = true;
      say(state, "interrupted");
    },
    draw() {
      say(about, said + (joined ? ", joined in the middle" : ""));
      say(state, this.ended ? (end?.stop === "error" ? "failed" : "done") : "answering");
      write();
      if (shownRounds !== rounds.length) stripe();
      figures();
    },
  };

  function write() {
    const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 24;
    for (const piece of pending) {
      text.append(piece.drafted ? h("mark", {}, piece.text) : piece.text);
      size += piece.text.length;
    }
    while (size > TEXT && text.firstChild) {
      size -= text.firstChild.textContent.length;
      text.firstChild.remove();
    }
    pending = [];
    if (!told && rounds.length) say(text, "Run `pilotfish open` to see what is written.");
    if (atEnd) text.scrollTop = text.scrollHeight;
  }

  function stripe() {
    shownRounds = rounds.length;
    const shown = rounds.splice(0, Math.max(0, rounds.length - ROUNDS)) && rounds;
    shownRounds = shown.length;
    const tallest = Math.max(4, ...shown.map((round) => round.proposed + 1));
    const unit = HEIGHT / tallest;
    strip.replaceChildren(...shown.flatMap((round, x) => column(round, x, unit)));
    const what = `${count(accepted)} of ${count(drafted)} guesses were right; the last ${shown.length} rounds`;
    strip.setAttribute("aria-label", what);
  }

  function figures() {
    const decoding = end?.seconds ?? spent;
    const got = end?.rate ?? (spent > 0 ? committed / spent : null);
    const without = end ? end.plain_rate : spent + saved > 0 ? committed / (spent + saved) : null;
    say(now, got ? rate(got) : "reading the prompt");
    say(plain, got && without ? `plain would be ${rate(without)}` : "");
    const guesses = drafted ? `${share(accepted / drafted)} of guesses right` : "no guesses";
    say(right, got ? `${count(committed)} tokens, ${guesses}, ${seconds(saved)} saved of ${seconds(decoding + saved)}` : "");
  }
}

function column(round, x, unit) {
  const parts = [["accepted", round.accepted], ["corrected", round.committed - round.accepted], ["rejected", round.proposed - round.accepted]];
  let y = HEIGHT;
  return parts.filter(([, amount]) => amount > 0).map(([kind, amount]) => {
    y -= amount * unit;
    return svg("rect", { class: `mark ${kind}`, x: x + 0.1, width: 0.8, y, height: Math.max(0.5, amount * unit - 0.5), "vector-effect": "non-scaling-stroke" });
  });
}
