// Numbers as people read them.

const whole = new Intl.NumberFormat("en");
const day = new Intl.DateTimeFormat("en", { month: "short", day: "numeric" });
const moment = new Intl.DateTimeFormat("en", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export const count = (value) => whole.format(value);
export const share = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)}%`.replace("-", "−"));
export const rate = (value) => (value === null || !Number.isFinite(value) ? "–" : `${value.toFixed(value < 100 ? 1 : 0)}\u00a0tokens/s`);
export const steps = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(2)}×`);
export const onDay = (at) => day.format(new Date(1000 * at));
export const at = (when) => moment.format(new Date(1000 * when));

export function seconds(value) {
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size < 0.0005) return "0\u00a0s";
  if (size < 1) return `${sign}${Math.round(1000 * size)}\u00a0ms`;
  if (size < 100) return `${sign}${size.toFixed(1)}\u00a0s`;
  const minutes = Math.round(size / 60);
  if (minutes < 100) return `${sign}${minutes}\u00a0min`;
  return `${sign}${Math.floor(minutes / 60)} h ${minutes % 60}\u00a0min`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "";
  if (value < 1e9) return `${Math.round(value / 1e6)}\u00a0MB`;
  return `${(value / 1e9).toFixed(1)}\u00a0GB`;
}

export function ago(when) {
  const passed = Date.now() / 1000 - when;
  if (passed < 60) return "less than a minute ago";
  if (passed < 5400) return `${Math.round(passed / 60)} min ago`;
  if (passed < 129600) return `${Math.round(passed / 3600)} h ago`;
  return at(when);
}

// How much sooner: what plain decoding would have taken is what it took and what was saved.
export function sooner(taken, saved) {
  const plain = taken + saved;
  if (plain <= 0) return null;
  return saved / plain;
}

export function widths(list) {
  const parts = [];
  for (const width of list) {
    const last = parts.at(-1);
    if (last && width === last[1] + 1) last[1] = width;
    else parts.push([width, width]);
  }
  return parts.map(([low, high]) => (low === high ? `${low}` : `${low}–${high}`)).join(", ");
}
