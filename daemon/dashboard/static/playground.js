// One prompt, plain and with guesses, side by side; the ids are compared by the server.

import { $, h, options, say, show } from "./dom.js";
import { count, rate } from "./format.js";
import { post } from "./connection.js";

const TITLES = { plain: "Plain", guessed: "With guesses" };

export function present(state) {
  options($("playground-model"), state.runners.map((runner) => [runner.id, runner.model]));
  show($("playground-empty"), state.runners.length === 0);
  show($("playground-form"), state.runners.length > 0);
  if (!running) $("playground-run").disabled = !state.may_change;
  $("playground-run").title = state.may_change ? "" : "Run `pilotfish open` to try this";
}

let running = false;

export function begin() {
  $("playground-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) run();
  });
}

async function run() {
  running = true;
  $("playground-run").disabled = true;
  const sides = shell();
  say($("playground-verdict"), "Answering plainly first");
  try {
    const body = { runner: $("playground-model").value, prompt: $("playground-prompt").value, tokens: Number($("playground-tokens").value) };
    const answer = await post("playground", body);
    for await (const piece of lines(answer.body)) take(piece, sides);
  } catch (error) {
    say($("playground-verdict"), `That did not work: ${error.message}`);
  } finally {
    running = false;
    $("playground-run").disabled = false;
  }
}

function shell() {
  const sides = {};
  for (const [name, title] of Object.entries(TITLES)) {
    const text = h("div", { class: "text", tabindex: "0", role: "region", "aria-label": `Answer: ${title}` });
    const about = h("p", { class: "rates" });
    sides[name] = { text, about, element: h("article", { class: "answer" }, h("h3", {}, title), text, about) };
  }
  $("playground-answers").replaceChildren(...Object.values(sides).map((side) => side.element));
  show($("playground-answers"), true);
  return sides;
}

function take(piece, sides) {
  if (piece.error) throw new Error(piece.error);
  if ("equal" in piece) {
    const faster = piece.plain && piece.guessed ? `, ${(piece.guessed / piece.plain).toFixed(2)} times the rate` : "";
    say($("playground-verdict"), piece.equal ? `The same ${count(piece.tokens)} tokens${faster}.` : "The tokens differ: please report this, with what `pilotfish diagnose` says.");
    return;
  }
  const side = sides[piece.side];
  if (piece.done) say(side.about, `${count(piece.done.tokens)} tokens, ${rate(piece.done.rate)}`);
  else side.text.append(piece.drafted ? h("mark", {}, piece.text) : piece.text);
  if (piece.done && piece.side === "plain") say($("playground-verdict"), "Now with guesses");
}

async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
  }
}
