// What the panels are made of. Text from outside gets into the page as text only: nothing here parses HTML.

export function el(tag, attributes = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-") && typeof value === "boolean") made.setAttribute(name, String(value));
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...inside.flat().filter((one) => one !== null && one !== undefined).map((one) => one instanceof Node ? one : String(one)));
  return made;
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  let unit = 0;
  for (; bytes >= 1000 && unit < 5; unit++) bytes /= 1000;
  return `${unit && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${["B", "kB", "MB", "GB", "TB", "PB"][unit]}`;
}

export function table(heads, rows) {
  return el("table", {}, el("thead", {}, el("tr", {}, heads.map((one) => el("th", { scope: "col" }, one)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((one) => el("td", {}, one))))));
}

export function bar(value, most, label) {
  const made = el("progress", { max: Math.max(1, most), "aria-label": label });
  if (value !== null && value !== undefined) made.value = Math.min(value, most);
  return made;
}

// A list of any length of which only what is seen is in the page. `row(item)` gives cells, `key(item)` what stays the
// same when an item changes, `open(item)` is called when one is chosen.
export class VirtualList {
  constructor({ name, heads, row, key, open = null, label = (item) => key(item) }) {
    Object.assign(this, { row, key, open, label, items: [], chosen: null });
    this.id = `list-${name}`;
    this.space = el("div", { class: "space", role: "presentation" });
    this.box = el("div", { class: `list ${name}`, role: "listbox", tabindex: 0, "aria-label": name, id: this.id,
      onscroll: () => this.draw(), onkeydown: (event) => this.pressed(event) }, this.space);
    this.count = el("p", { class: "dim", role: "status" });
    this.head = el("div", { class: name, "aria-hidden": "true" }, el("div", { class: "head" }, heads.map((one) => el("span", {}, one))));
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.box);
  }

  nodes() { return [this.count, this.head, this.box]; }

  show(items, total = items.length, what = "") {
    this.items = items;
    this.count.textContent = `${items.length < total ? `${items.length} of ${total}` : total} ${what}`;
    this.space.style.height = `${items.length * VirtualList.HEIGHT}px`;
    this.draw();
  }

  draw() {
    const height = VirtualList.HEIGHT, first = Math.max(0, Math.floor(this.box.scrollTop / height) - 3);
    const last = Math.min(this.items.length, first + Math.ceil((this.box.clientHeight || 400) / height) + 6);
    const rows = [];
    for (let at = first; at < last; at++) {
      const item = this.items[at], key = this.key(item);
      const made = el("div", { class: "row", role: "option", id: `${this.id}-${at}`, "aria-posinset": at + 1, "aria-setsize": this.items.length,
        "aria-selected": key === this.chosen, onclick: () => this.choose(at, true) }, this.row(item).map((one) => one instanceof Node ? one : el("span", { title: one }, one)));
      made.style.top = `${at * height}px`;
      rows.push(made);
    }
    this.space.replaceChildren(...rows);
    const at = this.at();
    if (at >= first && at < last) this.box.setAttribute("aria-activedescendant", `${this.id}-${at}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  at() { return this.chosen === null ? -1 : this.items.findIndex((one) => this.key(one) === this.chosen); }

  choose(at, open = false) {
    if (!this.items.length) return;
    const to = Math.max(0, Math.min(this.items.length - 1, at)), height = VirtualList.HEIGHT;
    this.chosen = this.key(this.items[to]);
    if (to * height < this.box.scrollTop) this.box.scrollTop = to * height;
    if ((to + 1) * height > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = (to + 1) * height - this.box.clientHeight;
    this.draw();
    if (open && this.open) this.open(this.items[to]);
  }

  pressed(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / VirtualList.HEIGHT) - 1), at = this.at();
    const steps = { ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: this.items.length - 1 };
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in steps) this.choose(steps[event.key]);
    else if (event.key === "Enter" || event.key === " ") { if (at >= 0) this.choose(at, true); }
    else return;
    event.preventDefault();
  }
}
VirtualList.HEIGHT = 28;
