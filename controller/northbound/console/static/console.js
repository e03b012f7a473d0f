// The console: keeps the latest parts that the manager tells, shows one panel of them, and keeps the keys.
import { el } from "/console/parts.js";
import { PANELS } from "/console/panels.js";

const at = (id) => document.getElementById(id);
const TOKEN = "rostrum-token";
const RETRY_MS = [500, 1000, 2000, 5000];
const QUIET_MS = 40_000; // the manager says something every 15 s, if only that nothing is new

export const app = { parts: {}, caller: null, tab: "fabric", search: "", may: () => app.caller?.token === "write", call, act, redraw, detail, notice };
let shown = null; // the panel in the page
let open = null; // what the details are of: {key, draw}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function call(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { ...headers(), ...(options.body ? { "Content-Type": "application/json" } : {}) }, cache: "no-store" });
  const found = await answer.json().catch(() => null);
  if (!answer.ok) throw Object.assign(new Error(found?.detail ?? `${answer.status} ${answer.statusText}`), { status: answer.status });
  return found;
}

// Asks first; says what the manager answered.
async function act(message, method, path, body) {
  const dialog = at("sure");
  at("sure-text").textContent = message;
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  if (dialog.returnValue !== "yes") return false;
  try {
    await call(path, { method, body: body ? JSON.stringify(body) : undefined });
    notice("");
    return true;
  } catch (error) {
    notice(error.message);
    return false;
  }
}

function notice(message) {
  at("notice").textContent = message;
  at("notice").hidden = !message;
}

// `draw(node)` fills the details, and is called again when something changed.
function detail(key, draw) {
  open = key === null ? null : { key, draw };
  const node = at("detail");
  node.hidden = !open;
  node.replaceChildren();
  if (!open) return;
  const inside = el("div", {});
  node.append(el("button", { type: "button", class: "close", onclick: close }, "Close (Esc)"), inside);
  open.node = inside;
  draw(inside);
}

function close() {
  detail(null);
  shown?.list?.box.focus();
}

function redraw() {
  shown?.update(app);
}

function show(tab, focus = false) {
  app.tab = tab;
  location.replace(`#${tab}`);
  detail(null);
  notice("");
  shown?.leave?.();
  for (const one of at("tabs").children) {
    const is = one.id === `tab-${tab}`;
    one.setAttribute("aria-selected", is);
    one.tabIndex = is ? 0 : -1;
    if (is && focus) one.focus();
  }
  at("panel").setAttribute("aria-labelledby", `tab-${tab}`);
  shown = PANELS[tab].make(app);
  at("panel").replaceChildren(...shown.nodes);
  redraw();
}

function heading() {
  const health = app.parts.health;
  if (!health) return;
  at("topology").textContent = health.topology;
  const missing = health.missing.length ? `; not connected: ${health.missing.slice(0, 5).join(", ")}${health.missing.length > 5 ? ` and ${health.missing.length - 5} more` : ""}` : "";
  const message = `${health.status}: ${health.switches_up} of ${health.switches} switches, ${health.agents_connected} of ${health.servers} agents, ${health.queued} requests wait${missing}`;
  if (at("health").textContent !== message) at("health").textContent = message;
  at("health").className = health.status === "ready" ? "good" : "warn";
}

// Server-sent events, by fetch: EventSource cannot send a token.
async function follow() {
  for (let failures = 0; ; ) {
    const ending = new AbortController();
    let quiet = 0;
    const heard = () => { clearTimeout(quiet); quiet = setTimeout(() => ending.abort(), QUIET_MS); };
    try {
      heard();
      app.caller = await call("/v1/caller");
      access();
      const answer = await fetch("/v1/overview/events", { headers: headers(), cache: "no-store", signal: ending.signal });
      if (!answer.ok) throw Object.assign(new Error((await answer.json()).detail), { status: answer.status });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ""; ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        failures = 0;
        text += value;
        const events = text.split("\n\n");
        text = events.pop();
        for (const one of events) take(one);
        document.body.dataset.live = "yes";
        heading();
        redraw();
        if (open?.draw) open.draw(open.node);
      }
    } catch (error) {
      if (error.status === 401 || error.status === 403) {
        at("health").textContent = "not known here: enter a token";
        if (!at("token").open) at("token").showModal();
        await new Promise((done) => addEventListener("token", done, { once: true }));
        continue;
      }
      at("health").textContent = `no connection to the manager (${error.message}); trying again. What is shown is old.`;
      at("health").className = "bad";
    } finally {
      clearTimeout(quiet);
      document.body.dataset.live = "no";
    }
    await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]));
  }
}

function take(event) {
  const name = /^event: (.*)$/m.exec(event)?.[1], data = /^data: (.*)$/m.exec(event)?.[1];
  if (!name || data === undefined) return;
  if (name !== "end") app.parts[name] = JSON.parse(data);
}

function access() {
  const { token, asked, name } = app.caller;
  at("access").textContent = token === "write" ? "May change things" : "Read-only";
  at("who").textContent = `You are ${name}; ${token ? `your token has role ${token}` : asked ? "no token" : "this address asks nobody, and no token was entered that the manager knows"}.`;
}

function setToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text); else sessionStorage.removeItem(TOKEN);
  at("token-text").value = "";
  at("token").close();
  dispatchEvent(new Event("token"));
  call("/v1/caller").then((caller) => { app.caller = caller; access(); redraw(); if (open) open.draw(open.node); }, (error) => notice(error.message));
}

function keys(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const typing = event.target instanceof HTMLInputElement;
  const names = Object.keys(PANELS);
  if (event.key === "Escape") { if (typing) { event.target.blur(); shown?.list?.box.focus(); } else close(); }
  else if (typing) return;
  else if (event.key === "/") at("search").focus();
  else if (event.key === "?") at("keys").showModal();
  else if (event.key >= "1" && event.key <= String(names.length)) show(names[Number(event.key) - 1], true);
  else return;
  event.preventDefault();
}

function tabKeys(event) {
  const names = Object.keys(PANELS), now = names.indexOf(app.tab);
  const to = { ArrowRight: now + 1, ArrowLeft: now - 1 + names.length, Home: 0, End: names.length - 1 }[event.key];
  if (to === undefined) return;
  show(names[to % names.length], true);
  event.preventDefault();
}

Object.entries(PANELS).forEach(([name, panel], number) => at("tabs").append(el("button", {
  type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", "aria-keyshortcuts": number + 1,
  onclick: () => show(name), onkeydown: tabKeys }, panel.title, " ", el("kbd", { "aria-hidden": "true" }, number + 1))));
at("search").addEventListener("input", () => { app.search = at("search").value.trim().toLowerCase(); redraw(); });
at("search").addEventListener("keydown", (event) => { if (event.key === "Enter") shown?.list?.box.focus(); });
at("help").addEventListener("click", () => at("keys").showModal());
at("access").addEventListener("click", () => at("token").showModal());
at("token-close").addEventListener("click", () => at("token").close());
at("token-forget").addEventListener("click", () => setToken(""));
at("token-form").addEventListener("submit", (event) => { event.preventDefault(); setToken(at("token-text").value.trim()); });
addEventListener("keydown", keys);
show(location.hash.slice(1) in PANELS ? location.hash.slice(1) : "fabric");
follow();
