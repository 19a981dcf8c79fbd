// The account: today in large figures, the month as a chart, the week by model and by program.

import { $, h, show, say, table } from "./dom.js";
import { count, onDay, seconds, share, sooner } from "./format.js";
import { ask } from "./connection.js";
import { bars } from "./charts.js";

const FRESH = 10000; // ms that the chart may be behind
let asked = 0;
let lastRequests = -1;

export function account(state) {
  const { today, week, models, clients } = state.account;
  figures(today, week);
  show($("account-empty"), week.requests === 0);
  table($("by-model"), "By model", HEADINGS("Model"), models.map(row));
  table($("by-client"), "By program", HEADINGS("Program"), clients.map(row));
  say($("history-note"), note(state.history));
  const passed = Date.now() - asked;
  if ((today.requests !== lastRequests && passed > FRESH) || passed > 300000) {
    lastRequests = today.requests;
    asked = Date.now();
    ask("history").then(days).catch(() => {});
  }
}

const HEADINGS = (what) => [what, "Saved today", "In 7 days", "Sooner", "Right", "Requests"];

function row(one) {
  const { today, week } = one;
  return [one.name, seconds(today.saved_seconds), seconds(week.saved_seconds), share(sooner(week.seconds, week.saved_seconds)), share(week.acceptance), count(week.requests)];
}

function figures(today, week) {
  const part = sooner(today.seconds, today.saved_seconds);
  const entries = [
    ["Time saved", seconds(today.saved_seconds), `${seconds(week.saved_seconds)} in seven days`, "main"],
    ["Answers were there", part === null ? "–" : `${share(part)} sooner`, "than without guesses", ""],
    ["Tokens written", count(today.committed), `in ${count(today.requests)} answers`, ""],
    ["Guesses right", share(today.acceptance), `${count(today.accepted)} of ${count(today.drafted)}`, ""],
  ];
  const key = JSON.stringify(entries);
  if ($("figures").dataset.key === key) return;
  $("figures").dataset.key = key;
  $("figures").replaceChildren(...entries.map(([term, value, small, kind]) =>
    h("div", { class: kind }, h("dt", {}, term), h("dd", {}, value, h("small", {}, small)))));
}

function days(found) {
  bars($("days-chart"), found.days.map((day) => day.at), found.days.map((day) => day.saved_seconds));
  const rows = found.days.filter((day) => day.requests).map((day) => [onDay(day.at), seconds(day.saved_seconds), count(day.requests), count(day.committed)]);
  table($("days-table"), "Days with requests", ["Day", "Saved", "Requests", "Tokens"], rows);
}

function note(history) {
  if (history.trouble) return `The history cannot be kept: ${history.trouble}`;
  return history.kept ? "Thirty days are kept on this machine: numbers only, no prompt and no answer." : "Counted since the daemon started: [page] history is off.";
}
