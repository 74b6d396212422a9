// Selects the node named after "#node=" in Netron's page. Netron has no address for a node, so this does what its "Find"
// sidebar does. If a later Netron works differently, the page shows the name of the node instead.
(() => {
  "use strict";
  const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  const wanted = () => {
    const found = /[#&]node=([^&]*)/.exec(window.location.hash);
    return found ? decodeURIComponent(found[1]) : null;
  };
  const say = (text) => {
    let bar = document.getElementById("opbridge-note");
    if (!bar) {
      bar = document.createElement("div");
      bar.id = "opbridge-note";
      bar.setAttribute("role", "status");
      Object.assign(bar.style, { position: "fixed", top: "0", left: "0", right: "0", padding: "8px 14px", background: "#fbf1dc", color: "#4d3200", font: "13px system-ui, sans-serif", zIndex: "99", overflowWrap: "anywhere" });
      document.body.append(bar);
    }
    bar.textContent = text;
    bar.hidden = !text;
  };
  const ready = async () => {
    for (let round = 0; round < 1200; round += 1) {
      const view = window.__view__;
      if (view?.target && view.activeTarget) return view;
      await wait(50);
    }
    return null;
  };
  const find = async (view, name) => {
    const here = view.activeTarget.nodes.find((node) => node.name === name);
    if (here) return here;
    for (const inner of [...(view.model.modules ?? []), ...(view.model.functions ?? [])]) {
      const node = inner.nodes?.find((item) => item.name === name);
      if (node) {
        await view.pushTarget(inner);
        return node;
      }
    }
    return null;
  };
  const select = async () => {
    const name = wanted();
    if (name === null) return;
    say("");
    try {
      const view = await ready();
      const node = view && await find(view, name);
      if (!node) {
        say(`The graph has no node ${name} at its top level or in a function; the engine may have created it during optimization.`);
        return;
      }
      view.target.scrollTo(view.target.activate(node, "sidebar"));
      document.body.dataset.opbridgeNode = name;
    } catch (error) {
      say(`This version of Netron can't select a node. Requested node: ${name}. (${error})`);
    }
  };
  window.addEventListener("hashchange", select);
  window.addEventListener("load", select);
})();
