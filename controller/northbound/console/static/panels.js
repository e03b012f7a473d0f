// The six views. Each makes its nodes once and updates them from the latest parts.
import { VirtualList, bar, el, size, table } from "/console/parts.js";

const ENDED = ["done", "failed"];
const STATES = { o: ["up", "good"], s: ["silent", "warn"], d: ["dark", "warn"], x: ["gone", "bad"], "-": ["never heard", "dim"] };
const DETAIL_MS = 1000; // between two looks at what the details are of
const OBJECTS_MS = 5000;
const encoded = encodeURIComponent;

function has(app, ...texts) {
  return !app.search || texts.some((one) => String(one ?? "").toLowerCase().includes(app.search));
}

// Reads `path` now and while it is looked at, at most once in `every` ms; a slow answer delays the next question.
function looking(app, path, every, draw) {
  let last = 0, busy = false, found = null, wrong = "";
  return (node) => {
    if (found || wrong) draw(node, found, wrong);
    if (busy || Date.now() - last < every) return;
    busy = true;
    app.call(typeof path === "function" ? path() : path).then((answer) => { found = answer; wrong = ""; }, (error) => { wrong = error.message; })
      .finally(() => { busy = false; last = Date.now(); if (node.isConnected) draw(node, found, wrong); });
  };
}

function button(app, label, sure, method, path, body) {
  return app.may() ? el("button", { type: "button", onclick: () => app.act(sure, method, path, body) }, label) : null;
}

// ---------------------------------------------------------------------------------------------------------- fabric

const fabric = {
  title: "Fabric",
  make(app) {
    let rack = ""; // only its servers; "" = all
    const list = new VirtualList({
      name: "servers", heads: ["server", "rack", "state", ""], key: (one) => one.name, label: (one) => one.name,
      row: (one) => [one.name, one.rack, el("span", { class: STATES[one.state][1] }, STATES[one.state][0]), one.note],
      open: (one) => app.detail(`server ${one.name}`, (node) => server(app, node, one.name)),
    });
    const racks = el("ul", { class: "racks", "aria-label": "racks" });
    const rest = el("div", {});
    const only = el("p", {});
    const choose = (name) => { rack = rack === name ? "" : name; app.redraw(); };
    return {
      list, nodes: [el("h2", {}, "Racks"), racks, rest, el("h2", {}, "Servers"), only, ...list.nodes()],
      update() {
        const part = app.parts.fabric;
        if (!part) return;
        keep(racks, part.racks, (one) => one.switch, (one) => card(one, rack, choose));
        only.replaceChildren(...(rack ? [`Only servers of ${rack}. `, el("button", { type: "button", onclick: () => choose(rack) }, "Show all")] : []));
        refill(rest, [part.switches, part.links_out, app.may()], () => others(app, part));
        const rows = part.racks.filter((one) => !rack || one.switch === rack).flatMap((one) => one.servers.map((name, at) => ({
          name, rack: one.switch, state: one.states[at], note: one.up ? "" : `its switch is not connected: ${one.cause}` })));
        list.show(rows.filter((one) => has(app, one.name, one.rack, STATES[one.state][0])), rows.length, "servers");
      },
    };
  },
};

// Nodes by key: those that are as they were stay, with the focus that may be on them.
function keep(box, items, key, make) {
  box.made ??= new Map();
  const nodes = items.map((item) => {
    const made = make(item), before = box.made.get(key(item));
    if (before?.isEqualNode(made)) return before;
    const focused = before?.contains(document.activeElement);
    box.made.set(key(item), made);
    if (focused) queueMicrotask(() => (made.matches("button") ? made : made.querySelector("button"))?.focus());
    return made;
  });
  if (nodes.length !== box.children.length || nodes.some((one, at) => box.children[at] !== one)) box.replaceChildren(...nodes);
}

// Filled again only when what it is made from changed.
function refill(node, from, make) {
  const text = JSON.stringify(from);
  if (node.from !== text) { node.from = text; node.replaceChildren(...[make()].flat().filter((one) => one !== null)); }
}

function card(one, rack, choose) {
  const up = [...one.states].filter((state) => state === "o").length;
  const kind = one.up ? (up < one.servers.length ? "some" : "") : "down";
  const summary = `${up} of ${one.servers.length} servers up${one.sending ? `, ${one.sending} send` : ""}${one.receiving ? `, ${one.receiving} receive` : ""}`;
  return el("li", {}, el("button", { type: "button", class: `rack ${kind}`, "aria-pressed": rack === one.switch, onclick: () => choose(one.switch) },
    el("strong", {}, one.switch), el("span", { class: "cells", "aria-hidden": "true" }, one.states), el("small", {}, summary),
    one.up ? null : el("small", { class: "bad" }, `not connected: ${one.cause}`)));
}

function others(app, part) {
  const down = part.switches.filter((one) => !one.up);
  const out = part.links_out.map((one) => [one.link.join(" - "), one.drained ? "drained" : "failed", one.why,
    one.drained ? button(app, "Undrain", `Use ${one.link.join("-")} again?`, "DELETE", `/v1/links/${one.link.map(encoded).join("/")}/drain`)
      : button(app, "Clear", `Take ${one.link.join("-")} for working again?`, "DELETE", `/v1/failed-links/${one.link.map(encoded).join("/")}`)]);
  const a = el("input", { size: 8, "aria-label": "one end", placeholder: "tor1" }), b = el("input", { size: 8, "aria-label": "other end", placeholder: "core" });
  return [
    part.switches.length ? el("p", { class: down.length ? "bad" : "dim" }, `${part.switches.length - down.length} of ${part.switches.length} switches without servers are connected${down.map((one) => `; ${one.name}: ${one.cause}`).join("")}`) : null,
    out.length ? el("h2", {}, `Links out of use (${part.links_out_count})`) : null,
    out.length ? table(["link", "state", "why", ""], out) : null,
    app.may() ? el("p", {}, "Drain a link: ", a, " - ", b, " ", el("button", { type: "button",
      onclick: () => app.act(`Take ${a.value}-${b.value} out of use?`, "PUT", `/v1/links/${encoded(a.value)}/${encoded(b.value)}/drain`, { reason: "from the console" }) }, "Drain")) : null,
  ];
}

function server(app, node, name) {
  const part = app.parts.fabric, rack = part.racks.find((one) => one.servers.includes(name));
  const state = STATES[rack.states[rack.servers.indexOf(name)]];
  const rows = (app.parts.transfers?.rows ?? []).filter((one) => one.live && (one.sender === name || one.failed.includes(name)));
  const groups = (app.parts.groups?.rows ?? []).filter((one) => one.silent.includes(name));
  node.replaceChildren(el("h2", {}, name), table(["", ""], [["state", el("span", { class: state[1] }, state[0])], ["rack", rack.switch],
    ["sends now", rows.filter((one) => one.sender === name).map((one) => `${one.id} (${one.phase}) `).join("") || "nothing"],
    ["failed for", rows.filter((one) => one.failed.includes(name)).map((one) => `${one.id} `).join("") || "no transfer that is shown"],
    ["groups it holds up", groups.map((one) => `${one.name} `).join("") || "none"]]));
}

// ----------------------------------------------------------------------------------------------------------- light

const light = {
  title: "Light",
  make(app) {
    const box = el("div", {});
    return { nodes: [box], update() { if (app.parts.light) refill(box, [app.parts.light, app.search], () => lights(app, app.parts.light)); } };
  },
};

function lights(app, part) {
  if (!part.ocs.length) return el("p", {}, "This topology has no optical circuit switch.");
  const power = (one) => one.output_dbm === null || one.output_dbm === undefined ? "" : `, ${one.output_dbm.toFixed(1)} dBm`;
  const kind = { "in use": "busy", idle: "good", free: "dim", "out of use": "bad", "found at start": "warn" };
  return [
    el("h2", {}, "Optical circuit switches"),
    table(["name", "state", "why"], part.ocs.map((one) => [one.name, el("span", { class: one.state === "up" ? "good" : "bad" }, one.state), one.cause])),
    el("h2", {}, `Circuits (${part.circuit_count})`),
    part.circuits.length ? table(["circuit", "state", "path", "from", "to", "splitters", "cross-connects"],
      part.circuits.filter((one) => has(app, one.id, one.path, one.uplink, ...one.downlinks, ...one.splitters)).map((one) => [
        one.id, one.path ? el("span", { class: "busy" }, one.state) : `${one.state}, idle`, one.path ?? "", one.uplink, one.downlinks.join(" "), one.splitters.join(" "),
        one.cross_connects.map((each) => `${each.input}>${each.output} ${each.state}${power(each)}`).join("; ")])) : el("p", { class: "dim" }, "No light goes anywhere now."),
    el("h2", {}, "Splitters"),
    part.splitters.length ? table(["splitter", "OCS", "1 to", "state", "circuit", "why"],
      part.splitters.filter((one) => has(app, one.name, one.ocs, one.state, one.circuit)).map((one) => [
        one.name, one.ocs, one.fanout, el("span", { class: kind[one.state] }, one.state), one.circuit ?? "", one.cause])) : el("p", { class: "dim" }, "There are none."),
  ];
}

// ------------------------------------------------------------------------------------------------------- transfers

function colour(phase) {
  return phase === "failed" ? "bad" : phase === "done" ? "good" : phase === "queued" ? "warn" : "busy";
}

const transfers = {
  title: "Transfers",
  make(app) {
    const list = new VirtualList({
      name: "transfers", heads: ["transfer", "sender", "size", "phase", "receivers done", "why"], key: (one) => one.id,
      row: (one) => [one.id, one.sender, size(one.size), el("span", { class: colour(one.phase) }, one.phase),
        el("span", {}, bar(one.states.done ?? 0, one.receivers, `${one.states.done ?? 0} of ${one.receivers} receivers have it`)), one.why || receiversText(one)],
      open: (one) => app.detail(`transfer ${one.id}`, transfer(app, one)),
    });
    return {
      list, nodes: list.nodes(),
      update() {
        const part = app.parts.transfers;
        if (!part) return;
        const rows = part.rows.filter((one) => has(app, one.id, one.sender, one.phase, one.path, one.why, ...one.failed));
        list.show(rows, part.rows.length, `shown; ${part.live_count} under way, ${part.queued} requests wait for a path`);
      },
    };
  },
};

function receiversText(one) {
  return Object.entries(one.states).map(([state, count]) => `${count} ${state}`).join(", ");
}

function points(one) {
  return [one.first_light_ns ? `data since ${new Date(one.first_light_ns / 1e6).toLocaleTimeString()}` : "", one.patched_fragments ? `${one.patched_fragments} fragments patched` : "",
    one.complete_ns ? `whole at ${new Date(one.complete_ns / 1e6).toLocaleTimeString()}` : ""].filter(Boolean).join(", ");
}

function transfer(app, chosen) {
  const list = new VirtualList({ name: "receivers", heads: ["receiver", "state", "progress", "why"], key: (one) => one.server,
    row: (one) => [one.server, el("span", { class: colour(one.state) }, one.state), el("span", {}, bar(one.bytes, one.size, `${one.server} has ${size(one.bytes)} of ${size(one.size)}`)), one.cause || points(one)] });
  const top = el("div", {}), bottom = el("div", {});
  const now = () => app.parts.transfers.rows.find((one) => one.id === chosen.id) ?? chosen;
  const whole = looking(app, `/v1/transfers/${encoded(chosen.id)}`, DETAIL_MS, (_, found) => {
    const rows = (found?.receivers ?? []).map((one) => ({ ...one, size: found.size, bytes: one.state === "done" ? found.size : one.state === "failed" ? 0 : one.bytes ?? null }));
    list.show(rows.filter((one) => has(app, one.server, one.state, one.cause)), rows.length, "receivers");
    refill(bottom, found?.sessions ?? [], () => [el("h2", {}, "Paths"), table(["path", "state", "carried by", "why"],
      (found?.sessions ?? []).map((one) => [one.id, one.state, one.kind ?? "", one.cause || one.reason]))]);
  });
  const why = looking(app, () => `/v1/paths/${encoded(now().path)}/why`, DETAIL_MS, (node, found, wrong) => {
    refill(node, [found?.why, found?.do, found?.ahead, wrong], () => el("p", {}, found ? `${found.why}${found.ahead ? `; ${found.ahead} before it` : ""}. ${found.do}` : wrong));
  });
  const reason = el("div", {});
  return (node) => {
    const one = now();
    if (!node.children.length) node.append(top, reason, ...list.nodes(), bottom);
    refill(top, [one, app.may()], () => [el("h2", {}, one.id), table(["", ""], [["sender", one.sender], ["size", size(one.size)],
      ["phase", el("span", { class: colour(one.phase) }, one.phase)], ["receivers", receiversText(one)], ["why", one.why || "nothing is in its way"]]),
      one.live && one.path ? button(app, "Cancel", `Give the path of ${one.id} back? Its sender goes on by unicast or ends.`, "DELETE", `/v1/paths/${encoded(one.path)}`) : null]);
    whole(list.box);
    if (one.live && one.path) why(reason);
    else reason.replaceChildren();
  };
}

// ---------------------------------------------------------------------------------------------------------- groups

const groups = {
  title: "Groups",
  make(app) {
    const list = new VirtualList({
      name: "groups", heads: ["group", "protocol", "members", "senders", "slow or silent subscribers"], key: (one) => one.name,
      row: (one) => [one.name, one.protocol, one.members, one.senders, el("span", { class: one.silent_count ? "warn" : "dim" }, one.silent_count ? late(one) : "none")],
      open: (one) => app.detail(`group ${one.name}`, group(app, one)),
    });
    return {
      list, nodes: list.nodes(),
      update() {
        const part = app.parts.groups;
        if (part) list.show(part.rows.filter((one) => has(app, one.name, one.protocol, ...one.silent)), part.count, `groups at ${part.addresses} addresses`);
      },
    };
  },
};

function late(one) {
  return one.silent.join(" ") + (one.silent_count > one.silent.length ? ` and ${one.silent_count - one.silent.length} more` : "");
}

function group(app, one) {
  return looking(app, `/v1/groups/${encoded(one.name)}`, DETAIL_MS, (node, found, wrong) => refill(node, [found, wrong], () => found ? [el("h2", {}, found.name),
    table(["", ""], [["protocol", `${found.protocol} ${found.options}`], ["order", found.order], ["address", found.address ?? "none"],
      ["shares it with", `${found.shares_with} other groups`], ["wasted deliveries", found.waste], ["members", found.members.join(" ")], ["senders", found.senders.join(" ")]])]
    : el("p", {}, wrong)));
}

// --------------------------------------------------------------------------------------------------------- objects

const objects = {
  title: "Objects",
  make(app) {
    let found = null, wrong = "", total = 0;
    const list = new VirtualList({ name: "objects", heads: ["object", "size", "holders", "digest"], key: (one) => one.id,
      row: (one) => [one.name || one.id, size(one.size), one.holder_count, one.digest],
      open: (one) => app.detail(`object ${one.id}`, object(app, one)) });
    const draw = () => {
      if (wrong) app.notice(wrong);
      list.show((found ?? []).filter((one) => has(app, one.name, one.id, one.digest)), total, "objects");
    };
    const look = () => app.call("/v1/objects?limit=1000").then((answer) => { found = answer.objects; total = answer.count; wrong = ""; },
      (error) => { wrong = error.message; }).then(draw);
    const timer = setInterval(look, OBJECTS_MS);
    look();
    return { list, nodes: list.nodes(), update: draw, leave: () => clearInterval(timer) };
  },
};

function object(app, one) {
  return looking(app, `/v1/objects/${encoded(one.id)}`, DETAIL_MS, (node, found, wrong) => refill(node, [found, wrong], () => found ? [el("h2", {}, found.name || found.id),
    table(["", ""], [["id", found.id], ["size", size(found.size)], ["digest", found.digest], ["held by", found.holders.join(" ")],
      ["another object by this id at", `${found.others} servers`], ["being fetched by", `${found.fetched_by} servers`]])]
    : el("p", {}, wrong)));
}

// ---------------------------------------------------------------------------------------------------------- doctor

const doctor = {
  title: "Doctor",
  make(app) {
    let found = null, message = "";
    const box = el("div", { role: "status" });
    const ask = el("button", { type: "button", onclick: () => look() }, "Examine now");
    const draw = () => refill(box, [found, message, app.search], () => [el("p", {}, message), ...(found?.findings ?? []).filter((one) => has(app, one.subject, one.what, one.check)).map((one) =>
      el("div", { class: `finding ${one.severity}` }, el("p", {}, el("strong", { class: one.severity === "error" ? "bad" : one.severity === "warning" ? "warn" : "dim" }, one.severity), ` ${one.what}`),
        one.mend ? el("p", { class: "dim" }, one.mend) : null, one.because ? el("p", { class: "dim" }, `because of ${one.because}`) : null))]);
    const look = () => {
      ask.disabled = true;
      message = "The doctor asks switches, OCSs and agents; this takes some 3 s.";
      draw();
      app.call("/v1/doctor").then((answer) => { found = answer; message = `${answer.healthy ? "Healthy: nothing has to be mended." : `${answer.findings.length} findings.`} Looked at ${new Date().toLocaleTimeString()}.`; },
        (error) => { message = error.message; }).then(() => { ask.disabled = false; draw(); });
    };
    look();
    return { nodes: [el("h2", {}, "Findings"), el("p", {}, ask), box], update: draw };
  },
};

export const PANELS = { fabric, light, transfers, groups, objects, doctor };
