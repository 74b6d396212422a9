"use strict";
// Helpers shared by all parts of the page. Names come from untrusted models, so all text is inserted as text nodes.
const data = JSON.parse(document.getElementById("data").textContent);
const graph = document.querySelector("meta[name=opbridge-graph]")?.content ?? null;
// The folder of a report that is opened from its bundle, for a shell.
const opened = location.protocol === "file:" && location.pathname.endsWith("/report.html") ? decodeURIComponent(location.pathname.slice(0, -"/report.html".length)) : "BUNDLE";
const folder = /^[\w@%+=:,./-]+$/.test(opened) ? opened : `'${opened.replaceAll("'", "'\\''")}'`;
const SVG = "http://www.w3.org/2000/svg";
const GOOD = new Set(["identical", "pass", "pass (near tie)", "pass (same distribution)", "passed", "as PyTorch"]);
const BAD = new Set(["failed", "error", "mismatch", "differs", "wrong shape", "wrong dtype", "missing"]);

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
};
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const short = (value) => {
  const number = Number(value);
  if (typeof value === "string" || !Number.isFinite(number)) return value === "nan" ? "NaN" : String(value).replace("inf", "∞");
  if (number === 0) return "0";
  const size = Math.abs(number);
  return size >= 1e-3 && size < 1e5 ? String(Number(number.toPrecision(3))) : number.toExponential(1).replace("e", "e");
};
const units = (value) => `${short(value)} ${Number(value) === 1 ? "unit" : "units"}`;
const percent = (ratio) => {
  const share = 100 * Number(ratio);
  if (Number.isNaN(share)) return "NaN";
  if (share === Infinity) return "∞";
  if (share >= 1000) return share < 1e8 ? `${Number((share / 100).toPrecision(3)).toLocaleString("en")} ×` : `${short(share / 100)} ×`;
  return share < 0.1 && share > 0 ? "<0.1%" : `${Number(share.toPrecision(2))}%`;
};
const duration = (seconds) => {
  if (seconds === null || seconds === undefined) return "–";
  const value = Number(seconds);
  if (value >= 1) return `${short(value)} s`;
  return value >= 1e-3 ? `${short(value * 1e3)} ms` : `${short(value * 1e6)} µs`;
};
const size = (bytes) => {
  const step = ["bytes", "kB", "MB", "GB"].findIndex((unit, power) => bytes < 1000 ** (power + 1));
  return step < 1 ? `${bytes} bytes` : `${short(bytes / 1000 ** step)} ${["bytes", "kB", "MB", "GB"][step]}`;
};
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const rank = (value) => (value === null || value === undefined || value === "nan" ? Infinity : value === "inf" ? 1e300 : Number(value));

const tone = (status) => (GOOD.has(status) ? "good" : BAD.has(status) ? "bad" : "open");
const status = (text) => el("span", { class: `status ${tone(text)}` }, { good: "✓ ", bad: "✕ ", open: "○ " }[tone(text)], text);
const meter = (ratio) => {
  const over = !(rank(ratio) <= 1);
  return el("span", { class: over ? "meter over" : "meter", "aria-hidden": "true" },
    el("i", { style: `width:${over ? 100 : Math.max(1, 100 * Number(ratio))}%` }));
};

// A table with sortable columns and a filter. Only the first rows are shown; a button shows more.
const MOST_ROWS = 100;
const table = (title, given, rows, { search = rows.length > 12, order = null, first = MOST_ROWS } = {}) => {
  // A wide column that is empty in all rows is left out.
  const columns = given.filter((column) => !column.wide || rows.some((row) => column.value(row)));
  const head = el("tr"), body = el("tbody");
  const count = el("span", { class: "count", "aria-live": "polite" });
  const field = el("input", { type: "search", placeholder: "Filter", "aria-label": `Filter: ${title}` });
  const more = el("button", { class: "more", type: "button" });
  const words = search ? rows.map((row) => columns.map((column) => column.text?.(row) ?? String(column.value(row) ?? "")).join(" ").toLowerCase()) : [];
  let shown = first, sorted = order ?? { column: -1, down: false };
  const show = () => {
    const wanted = field.value.trim().toLowerCase().split(/\s+/);
    let kept = rows.map((row, index) => index);
    if (search) kept = kept.filter((index) => wanted.every((word) => words[index].includes(word)));
    if (sorted.column >= 0) {
      const value = columns[sorted.column].value, sign = sorted.down ? -1 : 1;
      const keys = new Map(kept.map((index) => [index, value(rows[index])]));
      const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? (a > b) - (a < b) : String(a).localeCompare(String(b)));
      kept.sort((a, b) => sign * compare(keys.get(a), keys.get(b)) || a - b);
    }
    body.replaceChildren(...kept.slice(0, shown).map((index) => el("tr", {}, columns.map((column, position) => {
      const content = column.cell ? column.cell(rows[index]) : String(column.value(rows[index]) ?? "");
      const attributes = { class: [column.right && "right", column.wide && "long", column.breaks && "breaks"].filter(Boolean).join(" ") || null };
      return position === 0 ? el("th", { scope: "row", ...attributes }, content) : el("td", attributes, content);
    }))));
    more.hidden = kept.length <= shown;
    more.textContent = `Show ${Math.min(kept.length - shown, 10 * MOST_ROWS).toLocaleString("en")} more of ${kept.length.toLocaleString("en")}`;
    count.textContent = search ? `${kept.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : "";
    [...head.children].forEach((cell, index) => {
      if (index === sorted.column) cell.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  };
  columns.forEach((column, index) => {
    const sort = () => {
      sorted = { column: index, down: sorted.column === index ? !sorted.down : Boolean(column.right) };
      shown = first;
      show();
    };
    head.append(el("th", { scope: "col", class: column.right ? "right" : null }, el("button", { type: "button", onclick: sort }, column.name)));
  });
  field.addEventListener("input", () => { shown = first; show(); });
  more.addEventListener("click", () => { shown += 10 * MOST_ROWS; show(); });
  show();
  const frame = el("div", { class: "frame", tabindex: "0", role: "region", "aria-label": title },
    el("table", {}, el("caption", { class: "hidden" }, title), el("thead", {}, head), body), more);
  return [search ? el("div", { class: "controls" }, field, count) : null, frame];
};

const facts = (pairs, kind = "facts") => el("dl", { class: kind }, pairs.filter(([, value]) => value !== null && value !== undefined && value.length !== 0)
  .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
const flow = (pairs) => facts(pairs, "flow");

// Nodes: [name, operator, torch operator, source line, captured node].
const NODE = { name: 0, operator: 1, target: 2, source: 3, captured: 4 };
const models = () => data.models.map((model, index) => ({ ...model, index })).filter((model) => model.file.endsWith(".onnx"));
const modelOf = (engine) => {
  const found = data.engines.find((item) => item.label === engine) ?? data.engines[0];
  const wanted = found ? found.model : 0;
  return models().find((model) => model.index === wanted) ?? models()[0];
};
const graphLink = (node, engine) => {
  const model = modelOf(engine);
  if (!model) return null;
  if (graph === null) {
    return el("p", { class: "note" }, "To see the node in the graph, run ", el("code", {}, `opbridge view ${folder}`));
  }
  const place = `${graph}${model.index}/#node=${encodeURIComponent(data.nodes[node][NODE.name])}`;
  return el("a", { class: "open-graph", href: place, target: "opbridge-graph" }, "Open in the graph ↗");
};
const nodeFacts = (node) => {
  const row = data.nodes[node];
  return [["operator", row[NODE.operator]], ["torch operator", row[NODE.target]], ["captured node", row[NODE.captured]], ["source", row[NODE.source]]];
};
const valueFacts = (value) => [
  ["value", value[1]], ["position in the graph", `node ${value[2]}`], ["result", status(value[3])],
  ["max error", units(value[4])], ["PyTorch’s error", units(value[5])],
  ["tolerance", Number(value[6]) ? units(value[6]) : ""], ["used", Number(value[6]) ? percent(value[7]) : ""], ["detail", value[8]],
];
const dialog = el("dialog", { "aria-labelledby": "node-name" });
document.body.append(dialog);
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
const openNode = (node, engine = "") => {
  const parts = [];
  for (const trace of data.traces.filter((item) => !engine || item.engine === engine)) {
    for (const value of trace.values.filter((item) => item[0] === node)) {
      parts.push(el("h3", {}, [trace.engine, trace.case].filter(Boolean).join(", ")), flow(valueFacts(value)));
    }
  }
  const timed = data.timings.filter((item) => item.node === node && (!engine || item.engine === engine));
  const times = timed.map((item) => [`time in ${item.engine || "the engine"}`, duration(item.seconds)]);
  dialog.replaceChildren(
    el("h2", { id: "node-name", class: "mono" }, data.nodes[node][NODE.name]),
    el("button", { class: "close", type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "✕"),
    facts([...nodeFacts(node), ...times]), ...parts, graphLink(node, engine) ?? "");
  dialog.showModal();
};
const nodeButton = (node, engine) => el("button", { class: "node", type: "button", onclick: () => openNode(node, engine) }, data.nodes[node][NODE.name]);
