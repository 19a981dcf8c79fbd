// Elements from data. Text only ever becomes text: nothing here parses markup.

export const $ = (id) => document.getElementById(id);

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// Only what differs is touched, so that focus, selection and screen readers stay where they are.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

export function facts(list, pairs) {
  const wanted = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const key = JSON.stringify(wanted);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...wanted.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, String(value))]));
}

export function table(element, caption, headings, rows) {
  const key = JSON.stringify([headings, rows]);
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  element.replaceChildren(
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...headings.map((heading) => h("th", { scope: "col" }, heading)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, String(cell)))))),
  );
}

export function options(select, choices) {
  const key = JSON.stringify(choices);
  if (select.dataset.key === key) return;
  select.dataset.key = key;
  const chosen = select.value;
  select.replaceChildren(...choices.map(([value, text]) => h("option", { value }, text)));
  if (choices.some(([value]) => value === chosen)) select.value = chosen;
}
