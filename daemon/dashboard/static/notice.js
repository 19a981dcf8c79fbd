// One line at the top that a screen reader hears, too.

import { $, say, show } from "./dom.js";

const LASTS = 8000; // ms
let timer = null;
let standing = "";

export function announce(text) {
  put(text);
  clearTimeout(timer);
  timer = setTimeout(() => put(standing), LASTS);
}

// What is shown while nothing else is to be said.
export function remark(text) {
  if (text === standing) return;
  standing = text;
  clearTimeout(timer);
  put(text);
}

function put(text) {
  say($("notice"), text);
  show($("notice"), text !== "");
}
