"use strict";
// Theme: the system's unless the reader chooses; a page from disk may not be allowed to remember.
(() => {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const order = ["automatic", "light", "dark"];
  let choice = "automatic";
  try { choice = localStorage.getItem("theme") || choice; } catch { /* not allowed: start afresh */ }
  const apply = () => {
    const theme = choice === "automatic" ? (dark.matches ? "dark" : "light") : choice;
    document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${choice}`;
  };
  button.addEventListener("click", () => {
    choice = order[(order.indexOf(choice) + 1) % order.length];
    try { localStorage.setItem("theme", choice); } catch { /* not allowed: for this visit only */ }
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
})();

// A link to a run opens the list it is in.
addEventListener("hashchange", () => {
  const target = document.querySelector(`[id="${CSS.escape(location.hash.slice(1))}"]`);
  const fold = target && target.closest("details");
  if (fold && !fold.open) { fold.open = true; target.scrollIntoView(); }
});

// Charts: metric and panel to choose, methods to switch on and off, values under pointer or arrow keys.
(() => {
  const data = JSON.parse(document.getElementById("charts").textContent);
  const W = 960, H = 380, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 34;
  const make = (name, attributes, parent) => {
    const isHtml = ["button", "div", "label", "select", "option", "b", "span"].includes(name);
    const node = isHtml ? document.createElement(name)
      : document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (parent) parent.append(node);
    return node;
  };
  const show = (value) => Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);

  function ticks(low, high, count) {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
    const found = [];
    for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) found.push(t);
    return found;
  }

  function range(curves) {
    const lows = [], highs = [], xs = [];
    for (const c of curves) c.x.forEach((x, i) => {
      if (c.mean[i] === null) return;
      xs.push(x); lows.push(c.mean[i] - c.std[i]); highs.push(c.mean[i] + c.std[i]);
    });
    const low = Math.min(...lows), high = Math.max(...highs), pad = (high - low) * 0.04 || 0.5;
    return { x0: Math.min(...xs), x1: Math.max(...xs), y0: low - pad, y1: high + pad };
  }

  function select(parent, text, names, onchange) {
    const label = make("label", {}, parent);
    label.append(`${text} `);
    const box = make("select", {}, label);
    for (const name of names) make("option", { value: name }, box).textContent = name;
    box.addEventListener("change", () => onchange(box.value));
    return box;
  }

  function chart(root) {
    const metrics = data[root.dataset.grid];
    const hidden = new Set();
    let metric = Object.keys(metrics)[0], panel = Object.keys(metrics[metric])[0], at = null, view = null;
    const choices = make("div", { class: "choices" }, root);
    select(choices, "Show", Object.keys(metrics), (name) => { metric = name; panelBox(); draw(); });
    const panelPlace = make("span", {}, choices);
    const legend = make("div", { class: "legend", role: "group", "aria-label": "Curves" }, root);
    const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, tabindex: 0, role: "img" }, root);
    const readout = make("div", { class: "readout", "aria-live": "polite" }, root);

    function panelBox() {
      const names = Object.keys(metrics[metric]);
      if (!names.includes(panel)) panel = names[0];
      panelPlace.replaceChildren();
      if (names.length > 1) {
        select(panelPlace, "for", names, (name) => { panel = name; draw(); }).value = panel;
      }
    }

    function drawLegend(curves) {
      legend.replaceChildren();
      for (const c of curves) {
        const button = make("button", { type: "button", "aria-pressed": !hidden.has(c.label) }, legend);
        const key = make("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" }, button);
        make("path", { d: "M0 6H36", stroke: c.colour, "stroke-width": 3, "stroke-dasharray": c.dash }, key);
        button.append(c.label);
        button.addEventListener("click", () => {
          if (!hidden.delete(c.label)) hidden.add(c.label);
          const place = [...legend.children].indexOf(button);
          draw();
          legend.children[place].focus();
        });
      }
    }

    function drawAxes({ x0, x1, y0, y1 }, X, Y) {
      for (const t of ticks(y0, y1, 5)) {
        make("line", { class: "axis", x1: LEFT, x2: W - RIGHT, y1: Y(t), y2: Y(t) }, svg);
        make("text", { x: LEFT - 8, y: Y(t) + 4, "text-anchor": "end" }, svg).textContent = +t.toPrecision(6);
      }
      for (const t of ticks(x0, x1, 8)) {
        make("text", { x: X(t), y: H - 16, "text-anchor": "middle" }, svg).textContent = +t.toPrecision(6);
      }
      make("text", { x: (LEFT + W) / 2, y: H - 2, "text-anchor": "middle" }, svg).textContent = "round";
    }

    function drawCurve(c, X, Y) {
      const runs = [];  // a gap where a trial diverged splits the line
      c.x.forEach((x, i) => {
        if (c.mean[i] === null) return runs.push([]);
        if (!runs.length) runs.push([]);
        runs[runs.length - 1].push(i);
      });
      for (const run of runs.filter((own) => own.length)) {
        const point = (i, sign) => `${X(c.x[i]).toFixed(1)} ${Y(c.mean[i] + sign * c.std[i]).toFixed(1)}`;
        if (run.some((i) => c.std[i] > 0)) {
          const edge = [...run.map((i) => point(i, 1)), ...[...run].reverse().map((i) => point(i, -1))];
          make("path", { d: `M${edge.join("L")}Z`, fill: c.colour, opacity: 0.15 }, svg);
        }
        make("path", { class: "curve", "data-label": c.label, d: `M${run.map((i) => point(i, 0)).join("L")}`, fill: "none",
          stroke: c.colour, "stroke-width": c.width * 1.5, "stroke-dasharray": c.dash }, svg);
        if (run.length === 1) make("circle", { cx: X(c.x[run[0]]), cy: Y(c.mean[run[0]]), r: 4, fill: c.colour }, svg);
      }
    }

    function draw() {
      const all = metrics[metric][panel], shown = all.filter((c) => !hidden.has(c.label));
      drawLegend(all);
      svg.replaceChildren();
      svg.setAttribute("aria-label", `${metric} over rounds, ${panel}. Left and right arrows read values.`);
      view = null;
      readout.textContent = shown.length ? "Point at the chart, or focus it and use the arrow keys." : "All curves are switched off.";
      if (!shown.length) return;
      const box = range(shown);
      const X = (x) => LEFT + (x - box.x0) / (box.x1 - box.x0 || 1) * (W - LEFT - RIGHT);
      const Y = (y) => H - BOTTOM - (y - box.y0) / (box.y1 - box.y0) * (H - TOP - BOTTOM);
      drawAxes(box, X, Y);
      for (const c of shown) drawCurve(c, X, Y);
      const cross = make("line", { class: "cross", y1: TOP, y2: H - BOTTOM, visibility: "hidden" }, svg);
      const rounds = [...new Set(shown.flatMap((c) => c.x))].sort((a, b) => a - b);
      view = { X, shown, rounds, cross, box };
    }

    function read(index) {
      if (!view) return;
      at = Math.max(0, Math.min(view.rounds.length - 1, index));
      const round = view.rounds[at], x = view.X(round);
      view.cross.setAttribute("x1", x);
      view.cross.setAttribute("x2", x);
      view.cross.setAttribute("visibility", "visible");
      readout.replaceChildren(`round ${round}: `);
      const values = view.shown.map((c) => [c, c.x.indexOf(round)]).filter(([c, i]) => i >= 0 && c.mean[i] !== null);
      values.sort(([a, i], [b, j]) => b.mean[j] - a.mean[i]);
      for (const [c, i] of values) {
        make("b", { style: `border-bottom: 3px solid ${c.colour}` }, readout).textContent = c.label;
        readout.append(` ${show(c.mean[i])}${c.seeds > 1 ? ` ± ${show(c.std[i])}` : ""}   `);
      }
    }

    svg.addEventListener("pointermove", (event) => {
      if (!view) return;
      const place = svg.getBoundingClientRect();
      const x = (event.clientX - place.left) / place.width * W;
      const far = view.rounds.map((round) => Math.abs(view.X(round) - x));
      read(far.indexOf(Math.min(...far)));
    });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !view) return;
      event.preventDefault();
      read(at === null ? (step > 0 ? 0 : view.rounds.length - 1) : at + step);
    });
    panelBox();
    draw();
  }
  document.querySelectorAll(".chart").forEach(chart);
})();
