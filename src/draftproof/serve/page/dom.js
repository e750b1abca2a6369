// Makes and updates elements. Text from the server is only ever set as text: nothing on this page parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** An HTML element. attributes: strings; true is an empty one; null and false leave it out; on*: a listener. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets the text where it is another one: what did not change is neither announced nor selected anew. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Shows or hides. */
export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

/**
 * Children of parent, one for each item, in order. A child is kept as long as its key is there, so focus, selection and
 * what is unfolded survive an update.
 */
export function reconcile(parent, items, keyOf, create, update) {
  const keyed = [...parent.children].filter((child) => child.key !== undefined);
  const old = new Map(keyed.map((child) => [child.key, child]));
  const wanted = new Set(items.map(keyOf));
  for (const child of keyed) if (!wanted.has(child.key)) child.remove();
  let next = keyed.find((child) => wanted.has(child.key)) ?? null;
  for (const item of items) {
    const key = keyOf(item);
    const child = old.get(key) ?? Object.assign(create(item), { key });
    update(child, item);
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
}

/** The options of a select, its choice kept where it is still there. options: [value, text]. */
export function setOptions(select, options) {
  const now = JSON.stringify(options);
  if (select.shown === now) return;
  select.shown = now;
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

/** A table of texts. */
export function table(caption, heads, rows) {
  return el("table", {}, el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell))))));
}
