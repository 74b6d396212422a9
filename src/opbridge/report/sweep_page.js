// The sections of a sweep's page: totals, causes, models, and the plots of the numbers.
const right = true, wide = true;
const UNCOUNTED = new Set(["eager", "not applicable"]);
const result = (name) => {
  const kind = name === "pass" ? "good" : UNCOUNTED.has(name) ? "open" : "bad";
  return el("span", { class: `status ${kind}` }, { good: "✓ ", bad: "✕ ", open: "○ " }[kind], name);
};
const passing = (cell) => cell !== null && cell.status === "pass";
const place = (entry) => `${entry.zoo}/${entry.model}`;

const totals = () => table("Totals", [
  { name: "collection", value: (row) => row.zoo },
  { name: "run", value: (row) => row.run },
  { name: "pass", value: (row) => row.passed / Math.max(1, row.counted), right,
    cell: (row) => [`${row.passed} of ${row.counted}`, meter(row.passed / Math.max(1, row.counted))] },
  { name: "tried", value: (row) => row.tried, right },
  { name: "other results", value: (row) => Object.entries(row.counts).filter(([name]) => name !== "pass").map(([name, count]) => `${count} ${name}`).join(", "), wide },
], data.totals.filter((row) => row.tried));

const causes = () => table("Causes", [
  { name: "cause", value: (row) => row.cause, cell: (row) => el("span", { title: row.error }, row.cause) },
  { name: "models", value: (row) => row.models.length, right },
  { name: "only cause of", value: (row) => row.alone, right },
  { name: "result", value: (row) => row.status, cell: (row) => result(row.status) },
  { name: "run", value: (row) => row.run },
  { name: "which", value: (row) => row.models.join(", "), wide,
    cell: (row) => (row.models.length < 6 ? row.models.join(", ") : el("details", {}, el("summary", {}, `${row.models.slice(0, 3).join(", ")} and ${row.models.length - 3} more`), row.models.slice(3).join(", "))) },
], data.causes, { order: { column: 1, down: true } });

const openModel = (entry) => {
  const parts = entry.cells.flatMap((cell, index) => (cell === null ? [] : [
    el("h3", {}, data.runs[index]),
    facts([
      ["result", result(cell.status)], ["error", cell.error], ["causes", cell.causes.join("; ")], ["stage", cell.stage], ["signal", cell.signal],
      ["sets of sizes", String(cell.cases)], ["used of the tolerance", cell.tolerance_used === null ? "" : percent(cell.tolerance_used)],
      ["export", cell.export_seconds ? duration(cell.export_seconds) : ""], ["verification", cell.verify_seconds ? duration(cell.verify_seconds) : ""],
      ["one run", cell.run_seconds ? duration(cell.run_seconds) : ""], ["memory", cell.memory ? size(cell.memory) : ""],
      ["weights", cell.weights ? size(cell.weights) : ""], ["operators without a mapping in torch.onnx", cell.rungs],
    ]),
    cell.log ? el("pre", { class: "log" }, cell.log) : "",
  ]));
  dialog.replaceChildren(el("h2", { id: "node-name", class: "mono" }, place(entry)),
    el("button", { class: "close", type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "✕"), ...parts);
  dialog.showModal();
};

const modelTable = () => table("Models", [
  { name: "model", value: place, cell: (entry) => el("button", { class: "node", type: "button", onclick: () => openModel(entry) }, place(entry)) },
  ...data.runs.flatMap((run, index) => [
    { name: run, value: (entry) => entry.cells[index]?.status ?? "", cell: (entry) => (entry.cells[index] ? result(entry.cells[index].status) : "–"),
      text: (entry) => `${entry.cells[index]?.status ?? ""} ${entry.cells[index]?.error ?? ""}` },
    { name: "export", value: (entry) => entry.cells[index]?.export_seconds ?? -1, right, cell: (entry) => duration(entry.cells[index]?.export_seconds) },
    { name: "one run", value: (entry) => entry.cells[index]?.run_seconds ?? -1, right, cell: (entry) => duration(entry.cells[index]?.run_seconds) },
    { name: "memory", value: (entry) => entry.cells[index]?.memory ?? -1, right, cell: (entry) => (entry.cells[index]?.memory ? size(entry.cells[index].memory) : "–") },
  ]),
], data.models, { search: true });

// Points [x, y, label] on two logarithmic scales; with `equal` both have the same range, and a line marks equal values.
const scatter = (title, points, horizontal, vertical, words, equal) => {
  const width = 460, height = 340, margin = { left: 64, right: 12, top: 12, bottom: 46 };
  const logs = (values) => values.map((value) => Math.log10(value));
  let ranges = [0, 1].map((axis) => { const found = logs(points.map((point) => point[axis])); return [Math.floor(Math.min(...found)), Math.ceil(Math.max(...found) + 1e-9)]; });
  if (equal) { const both = [Math.min(ranges[0][0], ranges[1][0]), Math.max(ranges[0][1], ranges[1][1])]; ranges = [both, both]; }
  ranges = ranges.map(([low, high]) => [low, Math.max(high, low + 1)]);
  const scale = (value, [low, high], from, to) => from + (Math.log10(value) - low) / (high - low) * (to - from);
  const x = (value) => scale(value, ranges[0], margin.left, width - margin.right), y = (value) => scale(value, ranges[1], height - margin.bottom, margin.top);
  const ticks = ([low, high]) => Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index));
  return el("div", { class: "card" }, el("h3", {}, title), el("figure", {}, draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}, ${plural(points.length, "model")}` },
    ticks(ranges[0]).map((tick) => [draw("path", { class: "axis", d: `M${x(tick)},${margin.top}V${height - margin.bottom}` }), draw("text", { x: x(tick), y: height - margin.bottom + 18, "text-anchor": "middle" }, words(tick))]),
    ticks(ranges[1]).map((tick) => [draw("path", { class: "axis", d: `M${margin.left},${y(tick)}H${width - margin.right}` }), draw("text", { x: margin.left - 6, y: y(tick) + 4, "text-anchor": "end" }, words(tick))]),
    equal ? draw("path", { class: "equal", d: `M${margin.left},${height - margin.bottom}L${width - margin.right},${margin.top}` }) : [],
    points.map(([px, py, label]) => draw("circle", { class: "dot", cx: x(px), cy: y(py), r: 4 }, draw("title", {}, `${label}: ${horizontal} ${words(px)}, ${vertical} ${words(py)}`))),
    draw("text", { x: (width + margin.left) / 2, y: height - 8, "text-anchor": "middle" }, horizontal),
    draw("text", { x: 12, y: height / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${height / 2})` }, vertical))));
};

// Each run of opbridge beside torch.onnx's on the same engine, as positions.
const pairs = data.runs.map((run, index) => [index, data.runs.indexOf(run.replace("opbridge on", "torch.onnx on"))]).filter(([own, other]) => other >= 0 && own !== other);

const numbers = () => {
  const plots = pairs.map(([own, other]) => {
    const both = data.models.filter((entry) => entry.cells[own]?.run_seconds && entry.cells[other]?.run_seconds);
    const points = both.map((entry) => [entry.cells[other].run_seconds, entry.cells[own].run_seconds, place(entry)]);
    return points.length ? scatter(`Time of one run, ${data.runs[own].replace("opbridge on ", "")}`, points, "torch.onnx’s model", "opbridge’s model", duration, true) : null;
  });
  data.runs.forEach((run, index) => {
    const points = data.models.filter((entry) => passing(entry.cells[index]) && entry.cells[index].weights && entry.cells[index].memory)
      .map((entry) => [entry.cells[index].weights, entry.cells[index].memory, place(entry)]);
    if (points.length) plots.push(scatter(`Memory of export and verification, ${run}`, points, "weights", "memory", size, false));
  });
  const shown = plots.filter((plot) => plot !== null);
  return shown.length ? el("div", { class: "plots" }, shown) : [];
};

const both = () => pairs.map(([own, other]) => {
  const judged = data.models.filter((entry) => entry.cells[own] && entry.cells[other]);
  const count = (first, second) => judged.filter((entry) => passing(entry.cells[own]) === first && passing(entry.cells[other]) === second).length;
  const timed = judged.filter((entry) => entry.cells[own].run_seconds && entry.cells[other].run_seconds).map((entry) => entry.cells[own].run_seconds / entry.cells[other].run_seconds).sort((a, b) => a - b);
  const speed = timed.length ? ` Where both pass, a run of opbridge’s model takes ${short(timed[Math.floor(timed.length / 2)])} times as long as one of torch.onnx’s (median of ${timed.length}).` : "";
  return el("p", { class: "about" }, `${data.runs[own]} and ${data.runs[other]}: of ${plural(judged.length, "model")}, ${count(true, true)} pass with both, ${count(true, false)} only with opbridge, ${count(false, true)} only with torch.onnx, and ${count(false, false)} with neither.${speed}`);
});

const SECTIONS = [["totals", "Totals", () => [both(), totals()]], ["causes", "Causes", () => (data.causes.length ? causes() : [])], ["numbers", "Numbers", numbers], ["models", "Models", modelTable]];
for (const [id, title, make] of SECTIONS) {
  const content = [make()].flat(Infinity).filter(Boolean);
  if (!content.length) continue;
  document.getElementById("sections").append(el("section", { class: "part", id, "aria-label": title }, el("h2", {}, title), content));
  document.getElementById("contents").append(el("a", { href: `#${id}` }, title));
}
