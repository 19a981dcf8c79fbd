// Puts the page together: one stream of events, and a module for each section.

import { $, say } from "./dom.js";
import { connect } from "./connection.js";
import { models } from "./models.js";
import * as requests from "./requests.js";
import { account } from "./account.js";
import * as measured from "./measured.js";
import { certificates } from "./certificates.js";
import * as events from "./events.js";
import * as playground from "./playground.js";
import { remark } from "./notice.js";

const SAID = { live: "Live", lost: "No connection; trying again", waiting: "Connecting" };

function state(now) {
  models(now);
  account(now);
  requests.present(now.runners);
  measured.present(now.runners);
  playground.present(now);
  remark(now.config.error ? `The config is not in force: ${now.config.error}` : now.may_change ? "" : "You are looking on. To switch models, and to see what they write, run `pilotfish open`.");
}

function told(what) {
  const line = $("connection");
  say(line, SAID[what]);
  line.dataset.state = what;
  if (what === "lost") requests.interrupted();
  if (what === "live") {
    events.events().catch(() => {});
    certificates().catch(() => {});
  }
}

function happened(event) {
  events.happened(event);
  if (event.kind === "loaded") certificates().catch(() => {});
}

measured.begin();
events.begin();
playground.begin();
connect({ state, happened, live: requests.live, explained: measured.explained }, told);
