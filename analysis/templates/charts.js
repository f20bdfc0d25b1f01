// Charts: metric and panel to choose, methods to switch on and off, values under pointer or arrow keys.
const chartData = JSON.parse(document.getElementById("charts").textContent);
const HEIGHT = 380, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 34;
const PAPER_WIDTH = 700;  // of a chart in print

function make(name, attributes, parent) {
  const isHtml = ["button", "div", "label", "select", "option", "b", "span"].includes(name);
  const node = isHtml ? document.createElement(name)
    : document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

const roundsOf = (curve) => chartData.rounds[curve.rounds];
const deviation = (curve, i) => curve.std[i] ?? 0;
const shown = (value) => Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);

function ticks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const found = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) found.push(t);
  return found;
}

function rangeOf(curves) {
  const lows = [], highs = [], xs = [];
  for (const curve of curves) curve.mean.forEach((mean, i) => {
    if (mean === null) return;
    xs.push(roundsOf(curve)[i]);
    lows.push(mean - deviation(curve, i));
    highs.push(mean + deviation(curve, i));
  });
  if (!xs.length) return { x0: 0, x1: 1, y0: 0, y1: 1 };
  const low = Math.min(...lows), high = Math.max(...highs), pad = (high - low) * 0.04 || 0.5;
  return { x0: Math.min(...xs), x1: Math.max(...xs), y0: low - pad, y1: high + pad };
}

// The stretches of a curve without a gap; where a trial diverged there is none.
function stretches(curve) {
  const found = [[]];
  curve.mean.forEach((mean, i) => {
    if (mean === null) found.push([]);
    else found.at(-1).push(i);
  });
  return found.filter((own) => own.length);
}

function select(parent, words, names, onchange) {
  const label = make("label", {}, parent);
  label.append(`${words} `);
  const box = make("select", {}, label);
  for (const name of names) make("option", { value: name }, box).textContent = name;
  box.addEventListener("change", () => onchange(box.value));
  return box;
}

class Chart {
  constructor(root) {
    this.root = root;
    this.metrics = chartData.grids[root.dataset.grid];
    this.hidden = new Set();
    this.metric = Object.keys(this.metrics)[0];
    this.at = null;
    const choices = make("div", { class: "choices" }, root);
    select(choices, "Show", Object.keys(this.metrics), (name) => { this.metric = name; this.choosePanel(); });
    this.panelPlace = make("span", {}, choices);
    this.subject = make("div", { class: "subject" }, root);
    this.legend = make("div", { class: "legend", role: "group", "aria-label": "Curves" }, root);
    this.svg = make("svg", { tabindex: 0, role: "img" }, root);
    this.readout = make("div", { class: "readout", "aria-live": "polite" }, root);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("keydown", (event) => this.step(event));
    this.choosePanel();
  }

  choosePanel() {
    const names = Object.keys(this.metrics[this.metric]);
    if (!names.includes(this.panel)) this.panel = names[0];
    this.panelPlace.replaceChildren();
    if (names.length > 1) {
      const choose = (name) => { this.panel = name; this.draw(); };
      select(this.panelPlace, "for", names, choose).value = this.panel;
    }
    this.draw();
  }

  draw(width = this.svg.clientWidth) {
    const all = this.metrics[this.metric][this.panel];
    const curves = all.filter((curve) => !this.hidden.has(curve.label));
    this.width = Math.max(width, 300);
    this.drawLegend(all);
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.svg.setAttribute("aria-label",
      `${this.metric} over rounds, ${this.panel}. Left and right arrows read values.`);
    this.subject.textContent = `${this.metric} over rounds, ${this.panel}`;
    this.readout.textContent = curves.length
      ? "Point at the chart, or focus it and use the arrow keys." : "All curves are switched off.";
    this.view = curves.length ? this.drawCurves(curves) : null;
  }

  drawLegend(curves) {
    this.legend.replaceChildren();
    for (const curve of curves) {
      const isOn = !this.hidden.has(curve.label);
      const button = make("button", { type: "button", "aria-pressed": isOn }, this.legend);
      const key = make("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" }, button);
      make("path", { d: "M0 6H36", stroke: curve.colour, "stroke-width": 3, "stroke-dasharray": curve.dash }, key);
      button.append(curve.label);
      button.addEventListener("click", () => this.toggle(curve.label, button));
    }
  }

  toggle(label, button) {
    if (!this.hidden.delete(label)) this.hidden.add(label);
    const place = [...this.legend.children].indexOf(button);
    this.draw();
    this.legend.children[place].focus();
  }

  drawCurves(curves) {
    const { x0, x1, y0, y1 } = rangeOf(curves);
    const X = (x) => LEFT + (x - x0) / (x1 - x0 || 1) * (this.width - LEFT - RIGHT);
    const Y = (y) => HEIGHT - BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM);
    this.drawAxes(ticks(x0, x1, this.width / 110), ticks(y0, y1, 5), X, Y);
    for (const curve of curves) this.drawCurve(curve, X, Y);
    const cross = make("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" }, this.svg);
    const rounds = [...new Set(curves.flatMap(roundsOf))].sort((a, b) => a - b);
    return { X, curves, rounds, cross };
  }

  drawAxes(xs, ys, X, Y) {
    const write = (text, place) => { make("text", place, this.svg).textContent = text; };
    for (const t of ys) {
      make("line", { class: "axis", x1: LEFT, x2: this.width - RIGHT, y1: Y(t), y2: Y(t) }, this.svg);
      write(+t.toPrecision(6), { x: LEFT - 8, y: Y(t) + 4, "text-anchor": "end" });
    }
    for (const t of xs) write(+t.toPrecision(6), { x: X(t), y: HEIGHT - 16, "text-anchor": "middle" });
    write("round", { x: (LEFT + this.width) / 2, y: HEIGHT - 2, "text-anchor": "middle" });
  }

  drawCurve(curve, X, Y) {
    const rounds = roundsOf(curve);
    const point = (i, sign) =>
      `${X(rounds[i]).toFixed(1)} ${Y(curve.mean[i] + sign * deviation(curve, i)).toFixed(1)}`;
    for (const own of stretches(curve)) {
      if (curve.std.length) {
        const edge = [...own.map((i) => point(i, 1)), ...[...own].reverse().map((i) => point(i, -1))];
        make("path", { class: "band", d: `M${edge.join("L")}Z`, fill: curve.colour, opacity: 0.15 }, this.svg);
      }
      make("path", { class: "curve", "data-label": curve.label, d: `M${own.map((i) => point(i, 0)).join("L")}`,
        fill: "none", stroke: curve.colour, "stroke-width": curve.width * 1.5, "stroke-dasharray": curve.dash }, this.svg);
      if (own.length === 1) {
        make("circle", { cx: X(rounds[own[0]]), cy: Y(curve.mean[own[0]]), r: 4, fill: curve.colour }, this.svg);
      }
    }
  }

  read(index) {
    const { X, curves, rounds, cross } = this.view;
    this.at = Math.max(0, Math.min(rounds.length - 1, index));
    const round = rounds[this.at];
    cross.setAttribute("x1", X(round));
    cross.setAttribute("x2", X(round));
    cross.setAttribute("visibility", "visible");
    const values = curves.map((curve) => [curve, roundsOf(curve).indexOf(round)])
      .filter(([curve, i]) => i >= 0 && curve.mean[i] !== null);
    values.sort(([one, i], [two, j]) => two.mean[j] - one.mean[i]);
    this.readout.replaceChildren(`round ${round}: `);
    for (const [curve, i] of values) {
      make("b", { style: `border-bottom: 3px solid ${curve.colour}` }, this.readout).textContent = curve.label;
      this.readout.append(` ${shown(curve.mean[i])}${curve.std.length ? ` ± ${shown(curve.std[i])}` : ""}   `);
    }
  }

  point(event) {
    if (!this.view) return;
    const place = this.svg.getBoundingClientRect();
    const x = (event.clientX - place.left) / place.width * this.width;
    const far = this.view.rounds.map((round) => Math.abs(this.view.X(round) - x));
    this.read(far.indexOf(Math.min(...far)));
  }

  step(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.view) return;
    event.preventDefault();
    this.read(this.at === null ? (step > 0 ? 0 : this.view.rounds.length - 1) : this.at + step);
  }
}

const drawn = [...document.querySelectorAll(".chart")].map((root) => new Chart(root));
let lastWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== lastWidth) for (const chart of drawn) chart.draw();
  lastWidth = innerWidth;
});
addEventListener("beforeprint", () => { for (const chart of drawn) chart.draw(PAPER_WIDTH); });
addEventListener("afterprint", () => { for (const chart of drawn) chart.draw(); });
