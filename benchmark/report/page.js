"use strict";
// Text from result files only becomes text nodes and attribute values, never markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SHAPES = new Set(["svg", "g", "path", "line", "text"]);

function element(tag, attributes = {}, ...children) {
  const node = SHAPES.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Light and dark
const system = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
const setTheme = (dark) => { root.dataset.theme = dark ? "dark" : "light"; };
setTheme(system.matches);
system.addEventListener("change", () => setTheme(system.matches));
document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme === "light"));

// Dialog of a cell
const dialog = document.getElementById("cell");

function openCell(cell) {
  const columns = ["Seed", "Accuracy", "SHA-256: candidate sets, trained weights"];
  const rows = cell.seeds.map(([seed, result, candidates, weights]) => element("tr", {},
    element("td", {}, String(seed)), element("td", {}, result),
    element("td", { class: "text hash" }, candidates, element("br"), element("span", { class: "lead" }, weights))));
  const settings = cell.settings.flatMap(([source, lines]) =>
    [element("dt", {}, source), ...lines.map((line) => element("dd", { class: "hash" }, line))]);
  const words = cell.command.split(/ (?=--)/).flatMap((option) => [element("span", {}, option), " "]);
  dialog.replaceChildren(
    element("form", { method: "dialog" }, element("button", {}, "Close")),
    element("h2", {}, cell.title), element("p", {}, cell.result),
    ...cell.problems.map((problem) => element("p", { class: "warning" }, problem)),
    element("table", {}, element("thead", {}, element("tr", {}, ...columns.map((name) => element("th", {}, name)))),
      element("tbody", {}, ...rows)),
    element("p", { class: "lead" }, "Reproduce these runs in another folder:"),
    element("code", {}, ...words),
    element("details", {}, element("summary", {}, "Settings and their sources"), element("dl", {}, ...settings)));
  dialog.showModal();
}
document.querySelectorAll("[data-cell]").forEach((button) =>
  button.addEventListener("click", () => openCell(DATA.cells[button.dataset.cell])));
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

// Chart
const MARGIN = { left: 48, top: 12, bottom: 36 };

function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const values = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) values.push(Number((k * step).toPrecision(6)));
  return values;
}

// Move the labels at the ends of the lines apart.
function spread(places, gap, low, high) {
  const moved = [...places];
  for (let round = 0; round < 50; round++) {
    for (let k = 1; k < moved.length; k++) {
      const overlap = gap - (moved[k] - moved[k - 1]);
      if (overlap > 0) { moved[k - 1] -= overlap / 2; moved[k] += overlap / 2; }
    }
    moved.forEach((place, k) => {
      moved[k] = Math.max(low + gap * k, Math.min(high - gap * (moved.length - 1 - k), place));
    });
  }
  return moved;
}

function makeChart(section, data) {
  const plot = section.querySelector(".plot > svg"), readout = section.querySelector(".readout");
  const [datasets, metrics] = section.querySelectorAll("select");
  const boxes = [...section.querySelectorAll("input")];
  let scene = null, isChosen = false;

  function curves(metric) {
    return data.series.filter(([m, d]) => m === metric && d === Number(datasets.value))
      .map(([, , label, points]) => ({ ...data.labels[label], label, points }));
  }

  // The method under study and the five best ones on this dataset, by the first metric.
  function chooseBest() {
    const main = curves(0).filter((curve) => curve.kind === "main")
      .sort((a, b) => b.points.at(-1)[1] - a.points.at(-1)[1]);
    const best = new Set([...main.slice(0, 5), ...main.filter((curve) => curve.studied)].map((curve) => curve.label));
    check((box) => (best.size ? best.has(Number(box.value)) : Number(box.value) < 8));
    isChosen = false;
  }

  function check(rule) {
    for (const box of boxes) box.checked = box.disabled || rule(box);
    draw();
  }

  function draw() {
    const width = plot.clientWidth, height = plot.clientHeight, isWide = width > 720;
    const right = width - (isWide ? 130 : 14), bottom = height - MARGIN.bottom;
    const shown = curves(Number(metrics.value)).filter((curve) => boxes[curve.label].checked);
    plot.replaceChildren();
    readout.hidden = true;
    scene = null;
    if (!width || !shown.length) return;
    const first = Math.min(...shown.map((curve) => curve.points[0][0]));
    const last = Math.max(...shown.map((curve) => curve.points.at(-1)[0]), first + 1);
    const points = shown.flatMap((curve) => curve.points);
    let low = Math.min(...points.map((point) => point[2])), high = Math.max(...points.map((point) => point[3]));
    const padding = (high - low || 1) * 0.05;
    low -= padding;
    high += padding;
    const x = (epoch) => MARGIN.left + ((right - MARGIN.left) * (epoch - first)) / (last - first);
    const y = (value) => bottom - ((bottom - MARGIN.top) * (value - low)) / (high - low);
    for (const tick of ticks(low, high, height / 70)) {
      plot.append(element("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(tick), y2: y(tick) }),
        element("text", { x: MARGIN.left - 6, y: y(tick) + 4, "text-anchor": "end" }, String(tick)));
    }
    for (const tick of ticks(first, last, width / 90).filter(Number.isInteger)) {
      plot.append(element("text", { x: x(tick), y: bottom + 16, "text-anchor": "middle" }, String(tick)));
    }
    plot.append(element("text", { x: (MARGIN.left + right) / 2, y: height - 4, "text-anchor": "middle" }, "epoch"));
    plot.append(lines(shown, x, y));
    if (isWide) plot.append(ends(shown, x, y, right, bottom));
    scene = { shown, x, right, bottom, first, last };
  }

  function lines(shown, x, y) {
    const path = (points, column) => points.map((point) => `${x(point[0]).toFixed(1)},${y(point[column]).toFixed(1)}`).join("L");
    const bands = shown.map((curve) => element("path", { fill: curve.colour, "fill-opacity": Math.min(0.13, 0.8 / shown.length),
      d: `M${path(curve.points, 3)}L${path([...curve.points].reverse(), 2)}Z` }));
    const means = shown.map((curve) => element("path", { fill: "none", stroke: curve.colour, d: `M${path(curve.points, 1)}`,
      "stroke-width": curve.studied ? 2.6 : 1.6, "stroke-dasharray": curve.dash }));
    return element("g", { class: "series" }, ...bands, ...means);
  }

  function ends(shown, x, y, right, bottom) {
    const ordered = shown.map((curve) => ({ curve, end: curve.points.at(-1) })).sort((a, b) => y(a.end[1]) - y(b.end[1]));
    const gap = Math.min(15, (bottom - MARGIN.top) / ordered.length);
    const places = spread(ordered.map(({ end }) => y(end[1])), gap, MARGIN.top, bottom);
    return element("g", { class: "series" }, ...ordered.flatMap(({ curve, end }, k) => {
      const title = curve.title.length > 16 ? `${curve.title.slice(0, 15)}…` : curve.title;
      return [element("line", { x1: x(end[0]) + 2, y1: y(end[1]), x2: right + 12, y2: places[k], stroke: curve.colour, "stroke-opacity": 0.5 }),
        element("text", { x: right + 15, y: places[k] + 4, fill: curve.colour }, title)];
    }));
  }

  function hover(event) {
    if (!scene) return;
    const place = event.clientX - plot.getBoundingClientRect().left;
    const share = (place - MARGIN.left) / (scene.right - MARGIN.left);
    const epoch = Math.round(scene.first + Math.max(0, Math.min(1, share)) * (scene.last - scene.first));
    const nearest = (points) => points.reduce((a, b) => (Math.abs(b[0] - epoch) < Math.abs(a[0] - epoch) ? b : a));
    const values = scene.shown.map((curve) => [curve.title, nearest(curve.points)]).sort((a, b) => b[1][1] - a[1][1]);
    readout.textContent = [`epoch ${epoch}`, ...values.map(([title, [, mean, low, high]]) =>
      `${mean.toFixed(2)}  (${low.toFixed(2)}–${high.toFixed(2)})  ${title}`)].join("\n");
    plot.querySelectorAll(".cursor").forEach((line) => line.remove());
    plot.append(element("line", { class: "cursor", x1: scene.x(epoch), x2: scene.x(epoch), y1: MARGIN.top, y2: scene.bottom }));
    readout.hidden = false;
    const left = share < 0.5 ? place + 20 : place - 20 - readout.offsetWidth;
    readout.style.left = `${Math.max(0, Math.min(left, plot.clientWidth - readout.offsetWidth))}px`;
  }

  function leave() {
    readout.hidden = true;
    plot.querySelectorAll(".cursor").forEach((line) => line.remove());
  }

  plot.addEventListener("pointermove", hover);
  plot.addEventListener("pointerleave", leave);
  metrics.addEventListener("change", draw);
  datasets.addEventListener("change", () => (isChosen ? draw() : chooseBest()));
  boxes.forEach((box) => box.addEventListener("change", () => { isChosen = true; draw(); }));
  const rules = { best: null, all: () => true, none: () => false };
  for (const [name, rule] of Object.entries(rules)) {
    section.querySelector(`[name=${name}]`).addEventListener("click", () => {
      if (!rule) return chooseBest();
      isChosen = true;
      check(rule);
    });
  }
  new ResizeObserver(draw).observe(plot);
  chooseBest();
}
document.querySelectorAll(".curves").forEach((section, k) => {
  if (DATA.charts[k].series.length) makeChart(section, DATA.charts[k]);
});

// Profiles
const articles = document.querySelectorAll("article"), profile = document.getElementById("profile");
function showProfile() {
  articles.forEach((article, k) => { article.hidden = k !== Number(profile.value); });
}
profile.addEventListener("change", () => { showProfile(); scrollTo(0, 0); });
showProfile();
