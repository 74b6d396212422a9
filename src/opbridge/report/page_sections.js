// The sections of the page, in order. A section without content is left out.
const many = data.engines.length > 1;
const engineColumn = { name: "engine", value: (row) => row.engine, breaks: true };
const withEngine = (columns) => (many ? [...columns.slice(0, 1), engineColumn, ...columns.slice(1)] : columns);
const right = true, wide = true;
// Results that are identical to PyTorch's use nothing of the tolerance, although both may differ from the reference.
const measured = (row) => Number(row.budget) > 0 && row.status !== "identical";

const overview = () => {
  if (!data.outputs.length && !data.operators.length) return [];
  const worst = data.outputs.find((row) => measured(row) || !row.passed);
  const converted = data.operators.filter(bridged).length;
  const failed = data.outputs.filter((row) => !row.passed).length, failedCases = data.cases.filter((row) => row.verdict !== "passed").length;
  const tile = (name, value, note, ...rest) => el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, note), ...rest));
  // Both count what did not pass, as the sentences above do.
  const counted = (name, bad, all) => (all ? tile(name, bad ? `${bad} of ${all}` : String(all), bad ? "did not pass" : "passed") : null);
  const tiles = [
    counted("Output comparisons", failed, data.outputs.length),
    counted("Sets of inputs", failedCases, data.cases.length),
    worst && Number(worst.budget) > 0 ? tile("Largest error", percent(worst.ratio), `of the tolerance, in output ${worst.output}`, meter(worst.ratio)) : null,
    tile("Operators", String(data.operators.length), converted ? `${converted} with a custom mapping or kernel` : "all supported natively"),
    data.models.length ? tile("Model", size(data.models[0].bytes), data.models.length > 1 ? `${data.models[0].file}, and ${data.models.length - 1} more` : data.models[0].file) : null,
  ];
  return [el("dl", { class: "tiles" }, tiles)];
};

const engines = () => {
  if (!many && data.engines.every((row) => row.cases)) return [];
  return table("Engines", [
    { name: "engine", value: (row) => row.label },
    { name: "result", value: (row) => row.verdict, cell: (row) => status(row.verdict) },
    { name: "sets of inputs", value: (row) => row.cases, cell: (row) => (row.failed ? `${row.failed} of ${row.cases} did not pass` : row.cases ? `${row.cases} passed` : "none"), right },
    { name: "used of the tolerance", value: (row) => rank(row.worst?.ratio ?? 0), right,
      cell: (row) => (row.worst && measured(row.worst) ? [percent(row.worst.ratio), meter(row.worst.ratio)] : row.worst ? "identical" : "–") },
    { name: "note", value: (row) => row.reason, wide },
  ], data.engines);
};

// One card for all sets of inputs with the same first mismatching node.
const divergences = () => {
  const groups = new Map();
  for (const found of data.divergences) {
    const key = JSON.stringify([found.engine, found.verdict, found.first?.[0] ?? null]);
    groups.set(key, [...(groups.get(key) ?? []), found]);
  }
  return [...groups.values()].map((group) => divergence(group[0], group.map((found) => found.case)));
};

const divergence = (found, cases) => {
  const place = [found.engine, ...cases].filter(Boolean).join(", ");
  const words = {
    "mismatch disappears when intermediate values are read": "The mismatch disappears when intermediate values are read, which points to an optimization of the engine",
    "engine is not deterministic": "The engine gives different results for identical inputs",
  }[found.verdict] ?? found.verdict;
  const first = found.first;
  const between = found.between.slice(0, 12).join(", ") + (found.between.length > 12 ? `, and ${found.between.length - 12} more` : "");
  return el("div", { class: "card bad" }, el("h3", {}, el("span", { class: "status bad" }, "✕ "), place ? `${place}: ${words}` : words),
    first ? flow([["node", nodeButton(first[0], found.engine)], ...nodeFacts(first[0]), ...valueFacts(first).slice(2), ["one of the nodes", between]]) : null,
    found.detail && found.detail !== first?.[8] ? el("p", { class: "note" }, found.detail) : null,
    el("p", { class: "note" }, `Found in ${plural(found.runs, "run")} of the engine.`),
    first ? graphLink(first[0], found.engine) : null);
};

const crashes = () => data.crashes.map((crash) => el("div", { class: "card bad" },
  el("h3", {}, el("span", { class: "status bad" }, "✕ "), [crash.engine, crash.case || "loading the model", crash.cause + (crash.signal ? ` (${crash.signal})` : "")].filter(Boolean).join(", ")),
  el("p", {}, crash.message),
  crash.node === null ? null : flow([["node", nodeButton(crash.node, crash.engine)], ...nodeFacts(crash.node), ["or one of", crash.between.join(", ")]]),
  crash.detail ? el("p", { class: "note" }, crash.detail) : null,
  crash.log ? el("details", {}, el("summary", {}, "End of the log"), el("pre", { class: "log" }, crash.log)) : null,
  crash.node === null ? null : graphLink(crash.node, crash.engine)));

const special = () => (data.special_values.length ? table("Special values", [
  { name: "in the inputs", value: (row) => row.values },
  ...(many ? [engineColumn] : []),
  { name: "result", value: (row) => row.verdict, cell: (row) => status(row.verdict) },
  { name: "differences", wide, value: (row) => row.error ?? row.differences.map((item) => `${item.output}: ${item.engine} where PyTorch has ${item.torch}, in ${item.count} of ${item.elements} elements`).join("; ") },
], data.special_values) : []);

const depth = () => {
  if (!data.traces.length) return [];
  const name = (trace) => [trace.engine, trace.case].filter(Boolean).join(", ");
  const place = el("div", {});
  const show = (index) => {
    const trace = data.traces[index];
    const found = data.divergences.find((item) => item.case === trace.case && item.engine === trace.engine);
    place.replaceChildren(...plotTrace(trace, found, name(trace)).filter(Boolean));
  };
  const choice = el("select", { "aria-label": "Which run", onchange: () => show(Number(choice.value)) },
    data.traces.map((trace, index) => el("option", { value: index }, name(trace) || "all")));
  const bad = data.traces.findIndex((trace) => trace.values.some((value) => !GOOD.has(value[3])));
  choice.value = String(Math.max(0, bad));
  show(Math.max(0, bad));
  return [el("div", { class: "card" }, data.traces.length > 1 ? el("div", { class: "controls" }, choice) : null, place)];
};

const outputs = () => table("Results by output and set of inputs", withEngine([
  { name: "output", value: (row) => row.output, text: (row) => `${row.output} ${row.detail}`, cell: (row) => [el("span", { class: "mono" }, row.output), row.detail ? el("div", { class: "soft" }, row.detail) : null] },
  { name: "inputs", value: (row) => row.case },
  { name: "result", value: (row) => row.status, cell: (row) => [status(row.status), row.ill_conditioned ? el("span", { class: "note" }, " ill-conditioned") : null] },
  { name: "used", value: (row) => rank(row.ratio), right, cell: (row) => (measured(row) ? [percent(row.ratio), meter(row.ratio)] : "–"), text: (row) => percent(row.ratio) },
  { name: "max error", value: (row) => rank(row.engine_error), cell: (row) => (Number(row.budget) ? short(row.engine_error) : "–"), right },
  { name: "PyTorch’s error", value: (row) => rank(row.torch_error), cell: (row) => (Number(row.budget) ? short(row.torch_error) : "–"), right },
  { name: "tolerance", value: (row) => rank(row.budget), cell: (row) => (Number(row.budget) ? short(row.budget) : "exact"), right },
  { name: "max absolute difference", value: (row) => rank(row.max_abs), cell: (row) => short(row.max_abs), right },
  { name: "max relative difference", value: (row) => rank(row.max_rel), cell: (row) => short(row.max_rel), right },
  { name: "ULPs", value: (row) => rank(row.max_ulp), cell: (row) => short(row.max_ulp), right },
]), data.outputs);

const histograms = () => (data.histograms.length
  ? [el("h3", {}, "Error distribution of the outputs with the largest errors"), legend(false, true),
    el("p", { class: "about" }, "The bars show the number of elements on a logarithmic scale."), el("div", { class: "small" }, data.histograms.map(plotHistogram))]
  : []);

const cases = () => table("Sets of inputs", withEngine([
  { name: "inputs", value: (row) => row.name },
  { name: "sizes", value: (row) => row.sizes || "fixed" },
  { name: "result", value: (row) => row.verdict, cell: (row) => status(row.verdict) },
  { name: "module and captured graph", value: (row) => String(row.eager_matches), cell: (row) => ({ true: "agree", false: "differ" }[row.eager_matches] ?? "not compared") },
  { name: "notes", value: (row) => [row.error, ...row.notes].filter(Boolean).join(" "), wide },
]), data.cases);

// In a long list the operators that needed a custom mapping or kernel come first.
const FEW_OPERATORS = 25;
const bridged = (row) => !["native", "opset"].includes(row.rung);
const operators = () => {
  const rows = data.operators.length > FEW_OPERATORS ? [...data.operators].sort((a, b) => bridged(b) - bridged(a)) : data.operators;
  const link = (row, index) => el("span", {}, el("span", { class: "status good" }, "✓ "), row.links[index]);
  return table("Operators and their links", [
    { name: "operator", value: (row) => row.target, text: (row) => `${row.target} ${row.detail}`, cell: (row) => [el("span", { class: "mono" }, row.target), row.detail ? el("div", { class: "soft" }, row.detail) : null] },
    { name: "rung", value: (row) => row.rung },
    { name: "uses", value: (row) => row.count, right },
    { name: "1 torch", value: (row) => row.links[0], cell: (row) => link(row, 0) },
    { name: "2 mapping", value: (row) => row.links[1], cell: (row) => link(row, 1) },
    { name: "3 kernel", value: (row) => row.links[2], cell: (row) => link(row, 2) },
    { name: "where", wide, value: (row) => row.sources[0] ?? "", cell: (row) => el("span", { class: "mono", title: row.sources.join("\n") }, (row.sources[0] ?? "") + (row.sources.length > 1 ? ` (+${row.sources.length - 1})` : "")) },
  ], rows, { search: rows.length > 5, first: FEW_OPERATORS });
};

const timings = () => {
  if (!data.timings.length) return [];
  return [...new Set(data.timings.map((row) => row.engine))].flatMap((engine) => {
    const rows = data.timings.filter((row) => row.engine === engine);
    const groups = new Map();
    for (const row of rows) {
      const key = row.target || row.operator;
      const group = groups.get(key) ?? { key, seconds: 0, torch: null, nodes: [] };
      group.seconds += Number(row.seconds);
      group.torch = row.target && row.torch_seconds !== null ? Number(row.torch_seconds) : group.torch;
      group.nodes.push(row.node);
      groups.set(key, group);
    }
    const all = [...groups.values()].sort((a, b) => b.seconds - a.seconds);
    const total = all.reduce((sum, group) => sum + group.seconds, 0);
    const share = (seconds) => [`${Number((100 * seconds / (total || 1)).toPrecision(2))}%`, el("span", { class: "meter", "aria-hidden": "true" }, el("i", { style: `width:${100 * seconds / (total || 1)}%;background:var(--engine)` }))];
    const name = engine || data.engines[0]?.label || "the engine";
    const slower = (group) => (group.torch === null ? -1 : group.seconds / Math.max(group.torch, 1e-12));
    return [el("h3", {}, `${name}: ${duration(total)} in ${plural(rows.length, "node")}`),
      ...table(`Time by operator, ${name}`, [
        { name: "operator", value: (group) => group.key, cell: (group) => el("span", { class: "mono" }, group.key) },
        { name: "nodes", value: (group) => group.nodes.length, right },
        { name: "time in the engine", value: (group) => group.seconds, cell: (group) => duration(group.seconds), right },
        { name: "share", value: (group) => group.seconds, cell: (group) => share(group.seconds), right },
        { name: "time in PyTorch", value: (group) => group.torch ?? -1, cell: (group) => duration(group.torch), right },
        { name: "engine / PyTorch", value: slower, cell: (group) => (group.torch === null ? "–" : `${short(slower(group))} ×`), right },
      ], all),
      el("details", {}, el("summary", {}, "By node"), ...table(`Time by node, ${name}`, [
        { name: "node", value: (row) => data.nodes[row.node][NODE.name], cell: (row) => nodeButton(row.node, engine) },
        { name: "operator", value: (row) => row.operator },
        { name: "torch operator", value: (row) => row.target },
        { name: "time", value: (row) => Number(row.seconds), cell: (row) => duration(row.seconds), right },
      ], rows, { order: { column: 3, down: true } }))];
  });
};

const speed = () => {
  if (!data.benchmark) return [];
  const rows = data.benchmark.measurements, slowest = Math.max(...rows.map((row) => Number(row.median)));
  const bar = (row) => el("span", { class: "meter", "aria-hidden": "true" }, el("i", { style: `width:${100 * row.median / slowest}%;background:var(--engine)` }));
  const time = (key) => ({ name: key, value: (row) => Number(row[key]), cell: (row) => duration(row[key]), right });
  return [...table("Latency, throughput and memory", [
    { name: "", value: (row) => row.label },
    ...(rows.some((row) => row.threads !== null) ? [{ name: "threads", value: (row) => row.threads, right }] : []),
    { name: "median", value: (row) => Number(row.median), cell: (row) => [duration(row.median), bar(row)], right },
    time("p90"), time("p99"),
    { name: "runs per second", value: (row) => Number(row.throughput), cell: (row) => short(row.throughput), right },
    { name: "peak memory", value: (row) => row.peak_memory, cell: (row) => size(row.peak_memory), right },
    { name: "median / PyTorch", value: (row) => row.ratio ?? -1, cell: (row) => (row.ratio === null ? "–" : `${short(row.ratio)} ×`), right },
  ], rows), el("p", { class: "note" }, `Inputs: ${data.benchmark.inputs.map((spec) => `${spec.name} ${spec.dtype}[${spec.shape.join(", ")}]`).join(", ")}`),
  ...data.benchmark.notes.map((note) => el("p", { class: "note" }, note))];
};

const findings = () => data.findings.map((found) => el("div", { class: "card" },
  el("h3", {}, el("span", { class: `tag ${found.mended ? "info" : found.severity}` }, found.mended ? "fixed" : found.severity), found.code, " ", el("span", { class: "soft mono" }, found.target)),
  el("p", {}, found.message), found.fix && !found.mended ? el("p", {}, el("b", {}, "Fix: "), found.fix) : null,
  found.fixed ? el("p", {}, el("span", { class: "status good" }, "✓ "), found.fixed) : null,
  found.sources?.length ? el("p", { class: "note mono" }, found.sources.join(", ")) : null));

const folded = (items, title) => (items.length > 4
  ? [...items.slice(0, 3), el("details", {}, el("summary", {}, `${items.length - 3} more ${title}`), items.slice(3))] : items);

const changes = () => {
  const items = data.adaptations.map((row) => ({ ...row, names: row.nodes.join(", ") }));
  return items.length ? table("Changes made for an engine", [
    { name: "engine", value: (row) => row.engine },
    { name: "change", value: (row) => row.what, wide },
    { name: "nodes", value: (row) => row.names, wide, cell: (row) => el("span", { class: "mono" }, row.nodes.slice(0, 4).join(", ") + (row.nodes.length > 4 ? `, and ${row.nodes.length - 4} more` : "")) },
  ], items) : [];
};

// The boxes are as wide as their text; a click on a node shows what is known about it.
const drawnGraph = () => {
  if (data.graph === null) return [];
  const known = new Map(data.nodes.map((row, index) => [row[NODE.name], index])), half = 13;
  const lines = data.graph.lines.map((points) => draw("path", { class: "edge", d: points.map(([x, y], index) => {
    if (!index) return `M${x},${y + 2 * half}`;
    const [fromX, fromY] = points[index - 1], start = index === 1 ? fromY + 2 * half : fromY + half, end = index === points.length - 1 ? y : y + half;
    return `C${fromX},${(start + end) / 2} ${x},${(start + end) / 2} ${x},${end}`;
  }).join("") }));
  const boxes = data.graph.boxes.map(([x, y, width, text, name, kind]) => {
    const number = kind === "node" ? known.get(name) : undefined;
    const open = number === undefined ? {} : { tabindex: 0, role: "button", onclick: () => openNode(number), onkeydown: (event) => { if (event.key === "Enter") openNode(number); } };
    return draw("g", { class: `box ${kind}`, ...open }, draw("title", {}, name), draw("rect", { x: x - width / 2, y, width, height: 2 * half, rx: kind === "node" ? 4 : half }),
      draw("text", { x, y: y + half + 4, "text-anchor": "middle" }, text));
  });
  const { width, height } = data.graph;
  return [el("div", { class: "frame graph", tabindex: 0, role: "region", "aria-label": "Graph" }, draw("svg", { viewBox: `0 0 ${width} ${height}`, style: `width:${width}px` }, ...lines, ...boxes))];
};

const nodes = () => (data.nodes.length ? [el("details", {}, el("summary", {}, plural(data.nodes.length, "node")), ...table("Nodes", [
  { name: "node", value: (row) => row[NODE.name], cell: (row) => nodeButton(data.nodes.indexOf(row), data.engines[0]?.label ?? "") },
  { name: "torch operator", value: (row) => row[NODE.target] },
  { name: "where", value: (row) => row[NODE.source] },
], data.nodes))] : []);

const bundle = () => {
  const tensor = (spec) => `${spec.name}: ${spec.dtype}[${spec.shape.join(", ")}]`;
  const models = data.models.map((model) => `${model.file} (${[model.opset ? `opset ${model.opset}` : "", size(model.bytes), `for ${model.engines.join(", ")}`].filter(Boolean).join(", ")})`);
  const kernels = data.kernels.map((kernel) => `${kernel.file}: ${kernel.operators.join(", ")}`);
  const lines = (items) => items.flatMap((item, index) => (index ? [el("br"), item] : [item]));
  return [el("div", { class: "columns" },
    el("div", { class: "card" }, el("h3", {}, "Contents"), facts([["models", lines(models)], ["kernels", lines(kernels)], ["inputs", lines(data.inputs.map(tensor))], ["outputs", lines(data.results.map(tensor))], ...data.facts])),
    el("div", { class: "card" }, el("h3", {}, "Versions"), facts(Object.entries(data.versions)))), ...nodes()];
};

const silent = data.engines.filter((row) => !row.cases);
const notRun = () => silent.map((row) => el("div", { class: "card" }, el("h3", {}, status(row.verdict), ` ${row.label}`), el("p", {}, row.reason || "The engine did not run.")));

const SECTIONS = [
  ["", "", "", "", overview],
  ["engines", "Engines", "Engines", "", engines],
  ["divergences", "Mismatch", "First mismatching node", "The first node whose result differs from PyTorch’s by more than the tolerance, with its line in the model’s source.", divergences],
  ["crashes", "Crashes", "Crashes", "Each engine runs in a separate process, so a crash is reported as a result.", crashes],
  ["depth", "Depth", "Error by depth", "Each point is an intermediate value of the engine, compared with a float64 run of the same graph. One unit is the dtype’s machine epsilon at the magnitude of the element. The tolerance is 8 times PyTorch’s own error plus a small floor.", depth],
  ["outputs", "Outputs", "Outputs", `Every output on every set of inputs, compared with PyTorch; the largest errors first. ${data.unit}`, () => (data.outputs.length ? [...outputs(), ...histograms()] : [])],
  ["operators", "Operators", "Operators", "Every operator of the model with the rung that was used, and the three links: torch.export captures the operator, a mapping converts it to ONNX, and the engine has a kernel for it.", () => (data.operators.length ? operators() : [])],
  ["graph", "Graph", "Graph", `The nodes of ${data.models[0]?.file}, from the inputs to the outputs; weights and constants are left out.`, drawnGraph],
  ["times", "Time", "Time", "The time that the engine and PyTorch take for each operator: the median of several runs.", timings],
  ["speed", "Speed", "Speed", "Runs of the whole model in a process of its own for each, one after the other. Peak memory includes the libraries of the engine or of PyTorch.", speed],
  ["findings", "Findings", "Findings", "Problems and notes, each with a fix.", () => folded(findings(), "findings")],
  ["changes", "Changes", "Changes made for an engine", "", changes],
  ["cases", "Inputs", "Inputs", "Fresh inputs, never those of the export, at the sizes of the example and at other sizes.", () => (data.cases.length ? cases() : [])],
  ["special", "Special values", "Special values", "Whether the engine treats NaN, infinities, signed zeros, subnormal and extreme numbers as PyTorch does.", special],
  ["not-run", "Not run", "Not run", "", notRun],
  ["bundle", "Bundle", "The bundle", "", bundle],
];
const contents = document.getElementById("contents"), place = document.getElementById("sections");
if (graph !== null) {
  const shown = models();
  contents.append(...shown.map((model) => el("a", { href: `${graph}${model.index}/`, target: "opbridge-graph" }, shown.length > 1 ? `Graph of ${model.file} ↗` : "Graph ↗")));
}
for (const [id, label, title, about, make] of SECTIONS) {
  const parts = make().filter(Boolean);
  if (!parts.length) continue;
  if (!id) { place.append(...parts); continue; }
  place.append(el("section", { class: "part", id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), about ? el("p", { class: "about" }, about) : null, ...parts));
  contents.append(el("a", { href: `#${id}` }, label));
}
