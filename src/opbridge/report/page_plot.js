// Plots: the error over the depth of the model, and the histograms.
const FLOOR = 1e-3;
const exponent = (value) => Math.log10(Math.max(FLOOR, value));
const superscript = (power) => String(power).replace(/./g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit] ?? "⁻");
const powers = (low, high, most) => {
  const step = Math.max(1, Math.ceil((high - low) / most));
  return Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, index) => low + index * step);
};
const dots = (points) => points.map(([x, y]) => `M${x.toFixed(1)},${y.toFixed(1)}h0`).join("");
const diamond = ([x, y], half = 6) => `M${x.toFixed(1)},${(y - half).toFixed(1)}l${half},${half}l${-half},${half}l${-half},${-half}z`;
// A line with too many points to draw is reduced to the lowest point of each section.
const lowest = (points, most) => (points.length <= most ? points : Array.from({ length: most }, (_, index) => points
  .slice(Math.floor(index * points.length / most), Math.floor((index + 1) * points.length / most))
  .reduce((least, point) => (Number(point[6]) < Number(least[6]) ? point : least))));

// Zero is drawn on a separate line below the scale, non-finite values on a line above it.
const scales = (values, width, height, margin) => {
  const finite = values.flatMap((value) => [value[4], value[5], value[6]]).map(Number).filter((number) => Number.isFinite(number) && number > 0);
  const low = Math.floor(exponent(Math.min(1, ...finite))), high = Math.max(low + 2, Math.ceil(exponent(Math.max(10, ...finite)) + 0.05));
  const top = margin.top + 18, bottom = height - margin.bottom - 18;
  const y = (value) => {
    const number = Number(value);
    if (!Number.isFinite(number)) return margin.top + 4;
    if (number <= 0) return height - margin.bottom - 4;
    return bottom - (Math.max(low, exponent(number)) - low) / (high - low) * (bottom - top);
  };
  return { low, high, y };
};

const legend = (withOver, withBudget) => {
  const sign = (...shapes) => draw("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, ...shapes);
  const dot = (kind, wide) => draw("path", { d: "M13,6h0", class: kind, "stroke-width": wide, "stroke-linecap": "round" });
  return el("ul", { class: "legend" },
    el("li", {}, sign(dot("engine", 7)), "engine’s error"),
    el("li", {}, sign(draw("rect", { x: 9.5, y: 2.5, width: 7, height: 7, class: "torch", fill: "none", "stroke-width": 1.5 })), "PyTorch’s error"),
    withBudget ? el("li", {}, sign(draw("path", { d: "M0,6h26", class: "budget" })), "tolerance") : null,
    withOver ? el("li", {}, sign(draw("path", { d: diamond([13, 6]), class: "over" })), "above the tolerance") : null);
};

const plotTrace = (trace, divergence, label) => {
  const values = [...trace.values].sort((a, b) => a[2] - b[2]);
  const over = values.filter((value) => !GOOD.has(value[3]));
  const live = el("div", { class: "detail", "aria-live": "polite" });
  const figure = el("figure", {});
  let picked = -1, marks = [], mark = null, width = 0;
  const pick = (index) => {
    if (index < 0 || index === picked) return;
    picked = index;
    const value = values[index];
    const [x, y] = marks[index];
    mark.setAttribute("cx", x); mark.setAttribute("cy", y); mark.removeAttribute("visibility");
    live.replaceChildren(el("h3", { class: "mono" }, nodeButton(value[0], trace.engine)),
      flow([...nodeFacts(value[0]), ...valueFacts(value)]), graphLink(value[0], trace.engine) ?? "");
  };
  const nearest = (event) => {
    const box = figure.firstChild.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, least = Infinity;
    marks.forEach(([px, py], index) => {
      const distance = (px - x) ** 2 + 0.15 * (py - y) ** 2;
      if (distance < least) { least = distance; best = index; }
    });
    pick(best);
  };
  const keys = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (event.key === "Enter" && picked >= 0) return openNode(values[picked][0], trace.engine);
    if (step) pick(Math.min(values.length - 1, Math.max(0, picked < 0 ? 0 : picked + step)));
    else if (event.key === "Home") pick(0);
    else if (event.key === "End") pick(values.length - 1);
    else return undefined;
    event.preventDefault();
    return undefined;
  };
  const render = () => {
    const now = Math.max(280, Math.round(figure.clientWidth || 900));
    if (now === width) return;
    width = now;
    const height = width < 500 ? 260 : 330, margin = { left: 52, right: 12, top: 10, bottom: 34 };
    const { low, high, y } = scales(values, width, height, margin);
    const last = Math.max(1, trace.depth - 1);
    const x = (depth) => margin.left + 6 + depth / last * (width - margin.left - margin.right - 12);
    marks = values.map((value) => [x(value[2]), y(value[4])]);
    const right = width - margin.right, base = height - margin.bottom;
    const parts = [];
    for (const power of powers(low, high, 7)) {
      const at = y(10 ** power);
      parts.push(draw("line", { x1: margin.left, x2: right, y1: at, y2: at, class: "grid" }),
        draw("text", { x: margin.left - 8, y: at + 4, "text-anchor": "end" }, power === 0 ? "1" : power === 1 ? "10" : `10${superscript(power)}`));
    }
    parts.push(draw("line", { x1: margin.left, x2: right, y1: base - 4, y2: base - 4, class: "grid" }),
      draw("text", { x: margin.left - 8, y: base, "text-anchor": "end" }, "0"));
    if (values.some((value) => !Number.isFinite(Number(value[4])))) parts.push(draw("text", { x: margin.left - 8, y: margin.top + 8, "text-anchor": "end" }, "∞, NaN"));
    const shares = width < 500 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
    for (const depth of new Set(shares.map((share) => Math.round(share * last)))) {
      parts.push(draw("text", { x: x(depth), y: base + 16, class: "tick", "text-anchor": depth === 0 ? "start" : depth === last ? "end" : "middle" }, depth.toLocaleString("en")));
    }
    parts.push(draw("text", { x: right, y: height - 2, "text-anchor": "end" }, "depth: the node’s position in the graph →"));
    const allowed = values.filter((value) => Number(value[6]) > 0 && Number.isFinite(Number(value[6])));
    if (allowed.length) {
      const line = lowest(allowed, Math.min(240, Math.round(width / 4))).map((value, index) => `${index ? "L" : "M"}${x(value[2]).toFixed(1)},${y(value[6]).toFixed(1)}`).join("");
      const first = allowed[0];
      parts.push(draw("path", { d: allowed.length > 1 ? line : `M${margin.left},${y(first[6])}H${right}`, class: "budget", "data-part": "budget" }),
        draw("text", { x: allowed.length > 1 ? Math.min(x(first[2]) + 8, right - 70) : margin.left + 8, y: y(first[6]) - 8, class: "budgettext" }, "tolerance"));
    }
    const many = values.length > 0.6 * width, faint = many ? 0.4 : null;
    const square = many ? 1.6 : 3;
    parts.push(draw("path", { "data-part": "torch", class: "torch", fill: "none", "stroke-width": many ? 1 : 1.4, opacity: faint,
      d: values.map((value) => `M${(x(value[2]) - square).toFixed(1)},${(y(value[5]) - square).toFixed(1)}h${2 * square}v${2 * square}h${-2 * square}z`).join("") }));
    parts.push(draw("path", { d: dots(values.filter((value) => GOOD.has(value[3])).map((value) => [x(value[2]), y(value[4])])), "data-part": "engine", class: "engine", "stroke-width": many ? 3 : 6, "stroke-linecap": "round", opacity: many ? 0.7 : null }));
    if (divergence?.first) {
      const at = x(divergence.first[2]), toLeft = at > width * 0.6;
      parts.push(draw("line", { x1: at, x2: at, y1: margin.top, y2: base, class: "diverges", "data-part": "divergence" }),
        draw("text", { x: at + (toLeft ? -8 : 8), y: margin.top + 12, "text-anchor": toLeft ? "end" : "start", class: "divergestext" }, "first mismatch"));
    }
    if (over.length) parts.push(draw("path", { d: over.map((value) => diamond([x(value[2]), y(value[4])], many ? 3 : 6)).join(""), class: many ? "over small" : "over", "data-part": "over" }));
    mark = draw("circle", { r: 8, class: "picked", visibility: "hidden" });
    const text = `${label}: the engine’s error of ${plural(values.length, "value")} over a depth of ${plural(trace.depth, "node")}; ${over.length ? `${over.length} above the tolerance` : "all within the tolerance"}. Use the arrow keys to move along the graph.`;
    const image = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", tabindex: "0", role: "img", "aria-label": text, onkeydown: keys,
      onpointermove: nearest, onpointerdown: nearest }, ...parts, mark);
    figure.replaceChildren(image);
    const before = picked;
    picked = -1;
    if (before >= 0) pick(before);
  };
  new ResizeObserver(render).observe(figure);
  live.append(el("p", { class: "note" }, "Point at a node or use the arrow keys to see its details."));
  queueMicrotask(() => {
    render();
    const start = divergence?.first ? values.findIndex((value) => value[0] === divergence.first[0]) : -1;
    if (start >= 0) pick(start);
  });
  return [legend(over.length > 0, true), figure, live,
    trace.left_out ? el("p", { class: "note" }, `The plot shows the largest error of each section of the graph and leaves out ${plural(trace.left_out, "value")}. verification.json has all of them.`) : null];
};

const plotHistogram = (item) => {
  const width = 300, height = 150, margin = { left: 8, right: 8, top: 8, bottom: 30 };
  const most = Math.max(1, ...item.engine_counts, ...item.torch_counts);
  const tall = (count) => (count ? (0.08 + 0.92 * Math.log10(1 + count) / Math.log10(1 + most)) * (height - margin.top - margin.bottom) : 0);
  const step = (width - margin.left - margin.right) / item.bounds.length, base = height - margin.bottom;
  const bar = (count, index) => ({ x: (margin.left + index * step + 1).toFixed(1), y: (base - tall(count)).toFixed(1), width: Math.max(1, step - 2).toFixed(1), height: tall(count).toFixed(1) });
  const parts = item.bounds.flatMap((bound, index) => {
    const name = index === 0 ? `at most ${short(bound)} units` : `${short(item.bounds[index - 1])} to ${short(bound)} units`;
    return [
      draw("rect", { ...bar(item.engine_counts[index], index), class: "bar" }, draw("title", {}, `engine: ${plural(item.engine_counts[index], "element")}, ${name}`)),
      draw("rect", { ...bar(item.torch_counts[index], index), class: "bartorch" }, draw("title", {}, `PyTorch: ${plural(item.torch_counts[index], "element")}, ${name}`)),
    ];
  });
  const budget = Number(item.budget), first = item.bounds.findIndex((bound) => rank(bound) >= budget);
  if (budget > 0 && first >= 0) {
    const below = first > 0 ? Number(item.bounds[first - 1]) : 0, above = rank(item.bounds[first]);
    const share = above >= 1e300 ? 0.5 : Math.min(1, Math.max(0, (budget - below) / (above - below)));
    const at = margin.left + (first + share) * step;
    parts.push(draw("path", { d: `M${at},${margin.top}V${base}`, class: "budget" }));
  }
  const every = Math.ceil(item.bounds.length / 6);
  item.bounds.forEach((bound, index) => {
    if (index % every === 0) parts.push(draw("text", { x: margin.left + (index + 1) * step, y: base + 14, "text-anchor": "middle" }, short(bound)));
  });
  parts.push(draw("line", { x1: margin.left, x2: width - margin.right, y1: base, y2: base, class: "grid" }),
    draw("text", { x: width - margin.right, y: height - 2, "text-anchor": "end" }, "error in units →"));
  const elements = item.engine_counts.reduce((sum, count) => sum + count, 0);
  return el("div", { class: "card" }, el("h3", { class: "mono" }, item.output),
    el("p", { class: "note" }, [item.engine, item.case, plural(elements, "element")].filter(Boolean).join(" · "), " · ", status(item.status)),
    draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Errors of ${item.output}: the engine’s max error is ${units(item.engine_error)}, PyTorch’s ${units(item.torch_error)}, the tolerance ${units(item.budget)}` }, ...parts));
};
