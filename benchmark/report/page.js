"use strict";
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page"), tip = document.getElementById("tip"), dialog = document.getElementById("detail");
  const NONE = "–", SVG = "http://www.w3.org/2000/svg";
  let view, redraws = [];

  // Elements. Everything from results becomes a text node or an attribute value, never markup.
  function fill(node, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "style") Object.assign(node.style, value);
      else node.setAttribute(key, value === true ? "" : value);
    }
    for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== "") node.append(child);
    return node;
  }
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const button = (label, onclick, attributes, ...more) => el("button", { type: "button", onclick, ...attributes }, label, ...more);

  // Numbers
  const known = (x) => typeof x === "number" && isFinite(x);
  const fixed = (x, digits = 2) => (known(x) ? x.toFixed(digits).replace("-", "−") : NONE);
  const signed = (x, digits = 2) => (known(x) ? (x >= 0.5 * 10 ** -digits ? "+" : "") + fixed(Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x, digits) : NONE);
  const grouped = (x, digits = 0) => (known(x) ? x.toLocaleString("en-GB", { maximumFractionDigits: digits }) : NONE);
  const mean = (list) => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : NaN);
  const plural = (n, word) => `${grouped(n)} ${word}${n === 1 ? "" : "s"}`;
  const pText = (p) => (known(p) ? (p < 0.001 ? "p < 0.001" : `p = ${p.toFixed(3)}`) : "no test");
  const words = { test_accuracy: "Test accuracy (%)", train_accuracy: "Training labels found (%)", covering_rate: "Covering rate, held out (%)",
    approximated_accuracy: "Approximated accuracy, held out (%)", loss: "Training loss", true_labels_missing: "True labels missing from the sets (%)", true_labels_lost: "True labels lost (%)", average_set_size: "Average set size" };
  const metricTitle = (name) => words[name] || name.replaceAll("_", " ");

  // Lookups of the current view
  const method = (name) => view.methods.find((m) => m.name === name) || { name, title: name, kind: "unregistered", colour: "#666666", dash: [] };
  const dataset = (name) => view.datasets.find((d) => d.name === name) || { name, title: name };
  const cellOf = (m, d) => view.cells.find((c) => c.m === m && c.d === d);
  const isMain = (m) => !m.apart && (m.kind === "IDPLL" || m.kind === "PLL");

  // Colours: those of the figures; on a dark page a colour that would drown is mixed with white until it is seen.
  const dark = () => document.documentElement.dataset.theme === "dark";
  function luminance(rgb) {
    const [r, g, b] = rgb.map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function ink(colour, alpha = 1) {
    let rgb = /^#[0-9a-f]{6}$/i.test(colour) ? [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16)) : [120, 120, 120];
    if (dark() && Math.max(...rgb) - Math.min(...rgb) < 16) rgb = rgb.map((v) => 255 - v);  // black lines become white, greys keep their distance
    for (let k = 0; dark() && luminance(rgb) < 0.16 && k < 12; k++) rgb = rgb.map((v) => v + (255 - v) * 0.14);
    return `rgba(${rgb.map(Math.round).join(",")},${alpha})`;
  }
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dot = (m) => el("span", { class: "dot", "data-colour": m.colour, "aria-hidden": "true" });
  function paint(root = document) {
    for (const node of root.querySelectorAll("[data-colour]")) {
      const colour = ink(node.dataset.colour);
      if (node instanceof SVGElement) for (const key of ["stroke", "fill"]) { if (node.dataset.paint === key || node.dataset.paint === "both") node.style[key] = colour; }
      else node.style.background = colour;
    }
  }

  // Tooltip: the same text for pointer and keyboard
  function place(x, y) {
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(x + 12, innerWidth - box.width - 6))}px`;
    tip.style.top = `${y + box.height + 22 > innerHeight ? Math.max(6, y - box.height - 10) : y + 14}px`;
  }
  function withTip(node, text) {
    const show = (x, y) => { tip.textContent = text(); place(x, y); };
    node.addEventListener("mousemove", (event) => show(event.clientX, event.clientY));
    node.addEventListener("mouseleave", () => (tip.hidden = true));
    node.addEventListener("focus", () => {
      if (!node.matches(":focus-visible")) return;
      const box = node.getBoundingClientRect();
      show(box.left, box.bottom - 8);
    });
    node.addEventListener("blur", () => (tip.hidden = true));
    return node;
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  addEventListener("scroll", () => (tip.hidden = true), { passive: true });

  // Dialog with everything about one cell
  function copyable(text) {
    const code = el("code", {}, text);
    const copy = button("Copy", async () => {
      try { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; }
      catch { getSelection().selectAllChildren(code); copy.textContent = "Selected"; }
      setTimeout(() => (copy.textContent = "Copy"), 1500);
    });
    return el("div", { class: "command" }, code, copy);
  }
  function open(title, ...content) {
    tip.hidden = true;
    dialog.replaceChildren(el("div", { class: "head" }, el("h2", { id: "detail-title" }, title), button("Close", () => dialog.close(), { autofocus: true })), ...content.flat().filter(Boolean));
    dialog.showModal();
  }
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  // Pieces
  function section(id, title, lead, controls, ...content) {
    const node = el("section", { id, "aria-labelledby": `${id}-title` },
      el("div", { class: "head" }, el("div", {}, el("h2", { id: `${id}-title` }, title), lead ? el("p", { class: "lead" }, lead) : null),
        controls && controls.length ? el("div", { class: "controls" }, controls) : null), ...content);
    page.append(node);
    return node;
  }
  function choice(label, options, chosen, onchange) {
    const select = el("select", { onchange: () => onchange(select.value) }, options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
    return el("label", {}, label, select);
  }
  function tick(label, checked, onchange) {
    const box = el("input", { type: "checkbox", checked, onchange: () => onchange(box.checked) });
    return el("label", {}, box, label);
  }
  function segments(label, options, chosen, onchange) {
    const buttons = options.map(([value, text]) => button(text, () => {
      buttons.forEach((b) => b.setAttribute("aria-pressed", b.dataset.value === value));
      onchange(value);
    }, { "aria-pressed": String(value === chosen), "data-value": value }));
    return el("span", { class: "segments", role: "group", "aria-label": label }, buttons);
  }
  function scroll(label, content, what = "table") {
    const box = el("div", { class: what === "table" ? "scroll" : "figure", tabindex: 0, role: "region", "aria-label": label }, content);
    const hint = el("p", { class: "more", hidden: true }, `The ${what} goes on to the right: swipe or scroll it. →`);
    new ResizeObserver(() => (hint.hidden = box.scrollWidth <= box.clientWidth + 1)).observe(box);
    return el("div", {}, hint, box);
  }

  // A table whose columns sort; groups (controls, references …) stay apart whatever the order.
  // A column: {title, text, value(row), show(row) -> node or text, kind: "cell" | "wrap"}; the first is the row's head.
  function sortable(label, columns, groups, initial) {
    let order = initial || null;
    const heads = columns.map((column, k) => {
      const th = el("th", { scope: "col", class: `${column.text ? "text" : ""} ${column.kind === "opt" ? "opt" : ""}`.trim() || null, "aria-sort": "none" });
      th.append(button(column.title, () => {
        const down = order && order[0] === k ? order[1] === "descending" : Boolean(column.text);
        order = [k, down ? "ascending" : "descending"];
        draw();
      }));
      return th;
    });
    const table = el("table", {}, el("caption", { class: "hidden" }, label), el("thead", {}, el("tr", {}, heads)));
    const compare = (a, b) => {
      const column = columns[order[0]], x = column.value(a), y = column.value(b), flip = order[1] === "ascending" ? 1 : -1;
      const blank = (v) => v === null || v === undefined || (typeof v === "number" && isNaN(v));
      if (blank(x) || blank(y)) return blank(x) - blank(y);
      return flip * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
    };
    function draw() {
      heads.forEach((th, k) => th.setAttribute("aria-sort", order && order[0] === k ? order[1] : "none"));
      table.querySelectorAll("tbody").forEach((body) => body.remove());
      for (const group of groups) {
        if (!group.rows.length) continue;
        const rows = order ? [...group.rows].sort(compare) : group.rows;
        table.append(el("tbody", {},
          group.title ? el("tr", { class: "group" }, el("td", { colspan: columns.length }, el("span", {}, group.title))) : null,
          rows.map((row) => el("tr", {}, columns.map((column, k) => {
            const shown = column.show(row);
            if (k === 0) return el("th", { scope: "row" }, shown);
            return el("td", { class: [column.text ? "text" : "", column.kind || ""].join(" ").trim() || null }, shown);
          })))));
      }
      paint(table);
    }
    draw();
    return scroll(label, table);
  }
  const nameColumn = (get = (row) => method(row.m)) => ({
    title: "Method", text: true, value: (row) => get(row).title.toLowerCase(),
    show: (row) => {
      const m = get(row);
      return [dot(m), m.name === view.reference ? "★ " : "", m.title, m.kind === "unregistered" ? el("span", { class: "tag mid" }, "† not registered") : null];
    },
  });
  const KINDS = [["main", ""], ["control", "Controls, not ranked"], ["reference", "Reference rows, not ranked"], ["apart", "Extensions, not part of the paper and not ranked"], ["unregistered", "No method file of this checkout defines these (a plug-in, or removed since); not ranked"]];
  function byKind(rows, get) {
    const kind = (row) => { const m = get(row); return isMain(m) ? "main" : m.apart ? "apart" : m.kind; };
    const titles = new Map(KINDS);
    const kinds = [...titles.keys(), ...new Set(rows.map(kind).filter((k) => !titles.has(k)))];
    return kinds.map((k) => ({ title: titles.has(k) ? titles.get(k) : k, rows: rows.filter((row) => kind(row) === k) }));
  }

  // Header ------------------------------------------------------------------------------------------------------------
  function overview() {
    const [done, planned] = view.planned, states = Object.entries(view.states).filter(([state]) => state !== "done");
    const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
    fill(page, {}, [el("h1", {}, `Partial-label learning, profile ${view.profile}`),
      el("p", { class: "lead" }, view.caption),
      view.setting ? el("p", { class: "warn" }, `These runs changed the protocol of the profile: ${view.setting}.`) : null,
      el("dl", { class: "facts" },
        fact("Runs done", `${grouped(done)} of ${grouped(planned)}`, el("span", { class: "progress", "aria-hidden": "true" }, el("i", { style: { width: `${planned ? (100 * done) / planned : 0}%` } }))),
        fact("Not done", states.length ? states.map(([state, n]) => `${n} ${state}`).join(", ") : done < planned ? "none begun" : "none"),
        fact("Reported", "accuracy after the last epoch"),
        fact("Spread", "sample std (n−1)"),
        fact("Seeds", view.seeds.join(", ")),
        fact("Epochs", view.epochs.join(", ")),
        fact("Newest run", (view.newest || NONE).slice(0, 16).replace("T", " "))),
      view.complete ? null : el("p", { class: "warn" }, "Incomplete: cells marked k/n lack seeds, – has none. They are neither ranked nor counted as ties."),
      view.notes.filter((note) => note.startsWith("Warning")).map((note) => el("p", { class: "warn" }, note))]);
  }

  // Accuracy table ----------------------------------------------------------------------------------------------------
  function cellTip(cell) {
    if (!cell || (!cell.n && !cell.problems.length && !cell.published)) return "No runs";
    const lines = [`${method(cell.m).title} on ${dataset(cell.d).title}`];
    if (cell.n) lines.push(cell.values.map(([seed, value]) => `seed ${seed}: ${fixed(value)}`).join("\n"));
    if (known(cell.low)) lines.push(`95 % interval of the mean ${fixed(cell.low)} to ${fixed(cell.high)}`);
    if (cell.published) lines.push(`published ${fixed(cell.published[0])}${known(cell.published[1]) ? ` ± ${fixed(cell.published[1])}` : ""}, difference ${signed(cell.difference)}${cell.outside ? ", outside our interval ‡" : ""}`);
    return [...lines, ...cell.problems].join("\n");
  }
  function cellDialog(cell) {
    open(`${method(cell.m).title} on ${dataset(cell.d).title}`,
      el("p", { class: "lead" }, cell.n ? `${fixed(cell.mean)} ± ${fixed(cell.std)} over ${cell.n} of ${plural(cell.expected, "seed")}` : "No finished run"),
      cell.values.length ? el("table", {}, el("tbody", {}, cell.values.map(([seed, value]) => el("tr", {}, el("th", {}, `seed ${seed}`), el("td", {}, fixed(value, 3)))))) : null,
      el("p", { class: "lead" }, cellTip(cell).split("\n").slice(1 + cell.values.length).join(" · ")),
      cell.command ? [el("p", { class: "lead" }, "To run this cell again, in another folder:"), copyable(`${cell.command} --results elsewhere`)] : null,
      cell.show ? [el("ul", {}, cell.digests.map(([seed, candidates, weights]) => el("li", {}, `seed ${seed}: candidate set ${candidates.slice(0, 16)}…, weights ${weights.slice(0, 16)}…`))),
        el("details", {}, el("summary", {}, "Configuration, and where each value comes from"), valueList(cell)),
        el("p", { class: "lead" }, "The same with candidate files and machines:"), copyable(cell.show)] : null);
  }
  function valueList(cell) {
    const bySource = new Map();
    for (const place of cell.values_of) {
      const [source, values] = view.values[place];
      bySource.set(source, [...(bySource.get(source) || []), values]);
    }
    return el("dl", { class: "values" }, [...bySource].flatMap(([source, values]) => [el("dt", {}, source), ...values.map((line) => el("dd", {}, line))]));
  }
  function cellContent(cell, mode) {
    if (!cell) return el("span", { class: "none" }, NONE);
    const rank = cell.place === 1 ? "best" : cell.place === 2 ? "second" : "";
    const count = cell.complete || !cell.n ? null : el("span", { class: "short" }, ` ${cell.n}/${cell.expected}`);
    const ours = cell.n ? [el("span", { class: rank || null }, fixed(cell.mean)), el("span", { class: "std" }, ` ±${fixed(cell.std)}${cell.leading ? "°" : ""}`), count] : el("span", { class: "none" }, NONE);
    const difference = cell.published && known(cell.difference) ? el("span", { class: cell.difference < 0 ? "down" : "up" }, signed(cell.difference), cell.outside ? "‡" : "") : null;
    if (mode === "difference") return [difference || el("span", { class: "none" }, NONE), count];
    if (mode === "published") return cell.published ? [fixed(cell.published[0]), el("span", { class: "std" }, ` ±${fixed(cell.published[1])}`)] : el("span", { class: "none" }, NONE);
    if (mode === "ours") return ours;
    return [ours, cell.published ? el("span", { class: "sub" }, `${fixed(cell.published[0])} `, difference || "") : null];
  }
  function accuracy() {
    const host = el("div", {});
    const draw = (mode) => {
      const value = (cell) => (!cell ? null : mode === "difference" ? cell.difference : mode === "published" ? (cell.published || [null])[0] : cell.n ? cell.mean : null);
      const rows = view.methods.map((m) => ({ m: m.name }));
      const columns = [nameColumn(), { title: "Type", text: true, kind: "opt", value: (row) => method(row.m).kind, show: (row) => method(row.m).kind },
        ...view.datasets.map((d) => ({
          title: d.title, kind: "cell", value: (row) => value(cellOf(row.m, d.name)),
          show: (row) => {
            const cell = cellOf(row.m, d.name);
            return cell ? withTip(button("", () => cellDialog(cell), { "aria-haspopup": "dialog" }, cellContent(cell, mode)), () => cellTip(cell)) : NONE;
          },
        }))];
      host.replaceChildren(sortable("Test accuracy by method and data set", columns, byKind(rows, (row) => method(row.m))));
    };
    const modes = [["both", "Ours and published"], ["ours", "Ours"], ["published", "Published"], ["difference", "Difference"]];
    draw(view.paper ? "both" : "ours");
    section("results", "Accuracy", "Best in bold, second underlined, among PLL and IDPLL methods with all seeds. Choose a number for its seeds and its command.",
      view.paper ? [segments("Numbers shown", modes, "both", draw)] : [], host,
      el("ul", { class: "notes" }, view.notes.filter((note) => !note.startsWith("Warning")).map((note) => el("li", {}, note))));
  }

  // Curves ------------------------------------------------------------------------------------------------------------
  function decode(metric) {
    if (metric.decoded) return metric.decoded;
    const raw = atob(metric.values), bytes = new Uint8Array(raw.length);
    for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
    const codes = new DataView(bytes.buffer);
    let at = 0;
    metric.decoded = metric.series.map(([label, set, seed, low, high]) => {
      const values = metric.grids[set].map(() => {
        const code = codes.getUint16(at, true);
        at += 2;
        return code === 65535 ? NaN : low + ((high - low) * code) / 65534;
      });
      return { label: view.curves.labels[label].name, set, seed, values };
    });
    return metric.decoded;
  }
  function lasting(seconds) {
    if (!known(seconds)) return NONE;
    if (seconds < 90) return `${fixed(seconds, 1)} s`;
    return seconds < 5400 ? `${fixed(seconds / 60, 1)} min` : `${fixed(seconds / 3600, 1)} h`;
  }
  function smooth(values, width) {
    if (width < 1) return values;
    return values.map((value, k) => (isNaN(value) ? NaN : mean(values.slice(Math.max(0, k - width), k + width + 1).filter((v) => !isNaN(v)))));
  }
  function niceTicks(low, high, many) {
    const raw = (high - low) / Math.max(1, many) || 1, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((k) => k * power).find((s) => s >= raw * 0.999);
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) ticks.push(k * step);
    return ticks;
  }
  function chart() {
    if (!view.curves.metrics.length) {
      section("curves", "Curves", "No epoch has been recorded yet.", []);
      return;
    }
    const labels = view.curves.labels.map((l) => ({ ...(view.methods.find((m) => m.name === l.name) || { title: l.name, kind: "variant" }), ...l }));
    const order = [...view.methods.map((m) => m.name), ...labels.map((l) => l.name)];
    labels.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
    const state = { set: view.datasets[0].name, metric: view.curves.metrics[0].name, width: 0, bands: true, at: null,
      on: new Set() };
    const best = () => labels.filter(isMain).map((l) => [l.name, (cellOf(l.name, state.set) || {}).mean]).filter(([, v]) => known(v)).sort((a, b) => b[1] - a[1]).slice(0, 5).map(([name]) => name);
    const leading = () => [...new Set([...labels.map((l) => l.name).filter((name) => name === view.reference), ...best()])];
    state.on = new Set(leading());
    if (!state.on.size) labels.slice(0, 8).forEach((l) => state.on.add(l.name));
    const canvas = el("canvas", { tabindex: 0, role: "img", "aria-describedby": "curve-help" }), readout = el("div", { class: "readout", hidden: true });
    const output = el("output", {}, "none");
    const slider = el("input", { type: "range", min: 0, max: 20, value: 0, "aria-label": "Smoothing", oninput: () => { state.width = Number(slider.value); draw(); } });
    let scene = null;

    function lines() {
      const metric = view.curves.metrics.find((m) => m.name === state.metric), grid = metric.grids[state.set] || [];
      const all = decode(metric).filter((s) => s.set === state.set);
      return { grid, list: labels.filter((l) => state.on.has(l.name)).map((l) => {
        const seeds = all.filter((s) => s.label === l.name).map((s) => smooth(s.values, state.width));
        const across = (f) => grid.map((_, k) => { const v = seeds.map((s) => s[k]).filter((x) => !isNaN(x)); return v.length ? f(v) : NaN; });
        return { ...l, seeds: seeds.length, mean: across(mean), low: across((v) => Math.min(...v)), high: across((v) => Math.max(...v)) };
      }).filter((l) => l.seeds) };
    }
    function draw() {
      const ratio = devicePixelRatio || 1, box = canvas.getBoundingClientRect(), W = box.width, H = box.height;
      if (!W) return;
      canvas.width = W * ratio; canvas.height = H * ratio;
      const g = canvas.getContext("2d"), { grid, list } = lines();
      g.scale(ratio, ratio); g.clearRect(0, 0, W, H);
      const wide = W > 720, m = { l: 46, r: wide ? 116 : 12, t: 12, b: 38 };
      output.textContent = state.width ? `±${grouped(state.width * (grid.length > 1 ? grid[1] - grid[0] : 1))} epochs` : "none";
      canvas.setAttribute("aria-label", `${metricTitle(state.metric)} by epoch on ${dataset(state.set).title}, ${plural(list.length, "method")}`);
      const finite = list.flatMap((l) => [...(state.bands ? [...l.low, ...l.high] : l.mean)]).filter((v) => !isNaN(v));
      g.font = "12px system-ui, sans-serif"; g.fillStyle = css("--soft");
      if (!finite.length) {
        g.textAlign = "center"; g.fillText("Nothing to draw: choose a method that recorded this metric.", W / 2, H / 2);
        scene = null; readout.hidden = true;
        return;
      }
      // The first epochs, near chance, would squeeze everything else: the axis is that of the last four fifths.
      const sorted = [...finite].sort((a, b) => a - b), percent = state.metric.includes("accuracy") || state.metric.includes("rate");
      let low = sorted[0], high = sorted[sorted.length - 1];
      const late = list.flatMap((l) => (state.bands ? l.low : l.mean).slice(Math.floor(0.2 * grid.length))).filter((v) => !isNaN(v));
      if (percent && late.length) { const least = Math.min(...late); if (low < least - 0.3 * (high - least)) low = least - 0.08 * (high - least); }
      if (!percent && grid.length > 60) high = sorted[Math.floor(0.985 * sorted.length)];
      const pad = (high - low || 1) * 0.05;
      low -= pad; high += pad;
      const last = grid[grid.length - 1] || 1;
      const x = (epoch) => m.l + ((W - m.l - m.r) * epoch) / Math.max(1, last), y = (v) => H - m.b - ((H - m.t - m.b) * (v - low)) / (high - low);
      g.strokeStyle = css("--grid"); g.lineWidth = 1; g.textAlign = "right"; g.textBaseline = "middle";
      for (const t of niceTicks(low, high, H / 70)) {
        g.beginPath(); g.moveTo(m.l, y(t)); g.lineTo(W - m.r, y(t)); g.stroke();
        g.fillText(String(Number(t.toPrecision(6))), m.l - 8, y(t));
      }
      g.textAlign = "center"; g.textBaseline = "top";
      for (const t of niceTicks(0, last + 1, W / 60)) if (Number.isInteger(t) && t >= 1 && t <= last + 1) g.fillText(String(t), x(t - 1), H - m.b + 8);
      g.fillText("epoch", m.l + (W - m.l - m.r) / 2, H - 15);
      g.save(); g.beginPath(); g.rect(m.l, m.t - 4, W - m.l - m.r, H - m.t - m.b + 8); g.clip();
      const trace = (values, back) => { let pen = back; values.forEach((v, k) => { if (isNaN(v)) { pen = false; return; } pen ? g.lineTo(x(grid[k]), y(v)) : g.moveTo(x(grid[k]), y(v)); pen = true; }); };
      if (state.bands) for (const l of list) {
        if (l.seeds < 2) continue;
        const ok = grid.map((_, k) => k).filter((k) => !isNaN(l.low[k]));
        g.beginPath();
        ok.forEach((k, i) => (i ? g.lineTo(x(grid[k]), y(l.high[k])) : g.moveTo(x(grid[k]), y(l.high[k]))));
        ok.reverse().forEach((k) => g.lineTo(x(grid[k]), y(l.low[k])));
        g.fillStyle = ink(l.colour, dark() ? 0.2 : 0.13); g.fill();
      }
      for (const l of [...list].reverse()) {
        g.beginPath(); trace(l.mean, false);
        g.strokeStyle = ink(l.colour); g.lineWidth = l.name === view.reference ? 2.4 : 1.6;
        g.setLineDash(l.dash.map((d) => d * 1.7)); g.lineJoin = "round"; g.stroke(); g.setLineDash([]);
      }
      g.restore();
      const ends = list.map((l) => { let k = grid.length - 1; while (k > 0 && isNaN(l.mean[k])) k--; return { l, k, y: Math.max(m.t, Math.min(H - m.b, y(l.mean[k]))) }; }).sort((a, b) => a.y - b.y);
      if (wide && ends.length <= 24) {
        const gap = Math.min(15, (H - m.t - m.b) / ends.length), spots = ends.map((e) => e.y);
        for (let pass = 0; pass < 60; pass++) {
          for (let k = 1; k < spots.length; k++) {
            const short = gap - (spots[k] - spots[k - 1]);
            if (short > 0) { spots[k - 1] -= short / 2; spots[k] += short / 2; }
          }
          spots.forEach((spot, k) => { spots[k] = Math.max(m.t + gap * k, Math.min(H - m.b - gap * (spots.length - 1 - k), spot)); });
        }
        g.textAlign = "left"; g.textBaseline = "middle"; g.font = "11.5px system-ui, sans-serif";
        ends.forEach((e, k) => {
          const name = e.l.title.length > 15 ? `${e.l.title.slice(0, 14)}…` : e.l.title;
          g.strokeStyle = ink(e.l.colour, 0.55); g.lineWidth = 1; g.beginPath();
          g.moveTo(x(grid[e.k]) + 2, e.y); g.lineTo(W - m.r + 12, spots[k]); g.stroke();
          g.fillStyle = ink(e.l.colour); g.fillText(name, W - m.r + 15, spots[k]);
        });
      }
      scene = { grid, list, x, y, W, H, m };
      cross(g);
    }
    function cross(g) {
      readout.hidden = state.at === null || !scene;
      if (readout.hidden) return;
      const { grid, list, x, y, W, H, m } = scene, k = Math.max(0, Math.min(grid.length - 1, state.at));
      g.strokeStyle = css("--line-strong"); g.lineWidth = 1; g.beginPath(); g.moveTo(x(grid[k]), m.t); g.lineTo(x(grid[k]), H - m.b); g.stroke();
      const here = list.filter((l) => !isNaN(l.mean[k])).sort((a, b) => b.mean[k] - a.mean[k]);
      for (const l of here) { const py = y(l.mean[k]); if (py > H - m.b || py < m.t - 4) continue; g.fillStyle = ink(l.colour); g.beginPath(); g.arc(x(grid[k]), py, 3, 0, 7); g.fill(); }
      readout.replaceChildren(el("div", {}, el("strong", {}, `epoch ${grid[k] + 1}`)), ...here.slice(0, 17).map((l) => el("div", {}, el("span", {}, dot(l), l.title), el("span", {}, fixed(l.mean[k])))));
      paint(readout);
      const right = x(grid[k]) < W * 0.55;
      readout.style.left = right ? `${x(grid[k]) + 22}px` : "auto"; readout.style.right = right ? "auto" : `${W - x(grid[k]) + 22}px`;
      return here;
    }
    function move(to, say) {
      if (!scene) return;
      state.at = Math.max(0, Math.min(scene.grid.length - 1, to));
      draw();
      if (say) document.getElementById("live").textContent = `Epoch ${scene.grid[state.at] + 1}: ` + scene.list.filter((l) => !isNaN(l.mean[state.at])).sort((a, b) => b.mean[state.at] - a.mean[state.at]).slice(0, 5).map((l) => `${l.title} ${fixed(l.mean[state.at])}`).join(", ");
    }
    const leave = () => { state.at = null; draw(); };
    canvas.addEventListener("pointermove", (event) => {
      if (!scene) return;
      const px = event.clientX - canvas.getBoundingClientRect().left, at = (px - scene.m.l) / (scene.W - scene.m.l - scene.m.r);
      move(Math.round(at * (scene.grid.length - 1)));
    });
    canvas.addEventListener("pointerleave", leave);
    canvas.addEventListener("blur", leave);
    canvas.addEventListener("keydown", (event) => {
      if (!scene) return;
      const now = state.at === null ? scene.grid.length - 1 : state.at, far = Math.max(1, Math.round(scene.grid.length / 20));
      const to = { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - far, PageDown: now + far, Home: 0, End: scene.grid.length - 1 }[event.key];
      if (event.key === "Escape") leave();
      if (to === undefined) return;
      event.preventDefault(); move(to, true);
    });
    const chips = el("div", { class: "chips", role: "group", "aria-label": "Methods in the chart" });
    const toggles = labels.map((l) => button("", () => { state.on.has(l.name) ? state.on.delete(l.name) : state.on.add(l.name); refresh(); },
      { class: "chip", "data-method": l.name }, svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, svg("line", { x1: 0, y1: 4, x2: 22, y2: 4, "stroke-width": 2.4, "stroke-dasharray": l.dash.map((d) => d * 1.5).join(" ") || null, "data-colour": l.colour, "data-paint": "stroke" })), l.title));
    const set = (names) => { state.on = new Set(names); refresh(); };
    const variantsOf = labels.filter((l) => l.kind === "variant").length;
    chips.append(...toggles);
    const controls = [
      choice("Data set", view.datasets.map((d) => [d.name, d.title]), state.set, (v) => {
        const usual = String([...state.on].sort()) === String(leading().sort());
        state.set = v;
        usual ? set(leading()) : draw();  // the best five are those of the data set, unless somebody chose others
      }),
      choice("Metric", view.curves.metrics.map((m) => [m.name, metricTitle(m.name)]), state.metric, (v) => { state.metric = v; draw(); }),
      el("label", {}, "Smoothing", slider, output),
      tick("Seed bands", true, (v) => { state.bands = v; draw(); }),
      el("span", { class: "segments", role: "group", "aria-label": "Choose methods" }, button("All", () => set(labels.filter((l) => l.kind !== "variant" || labels.length - variantsOf === 0).map((l) => l.name))), button("Best 5", () => set(leading())), button("None", () => set([]))),
    ];
    function refresh() {
      toggles.forEach((b) => b.setAttribute("aria-pressed", state.on.has(b.dataset.method)));
      draw();
    }
    section("curves", "Curves", "Mean over seeds; the band spans the seeds from lowest to highest.", controls,
      el("div", { class: "chart" }, canvas, readout), chips,
      el("p", { class: "hidden", id: "curve-help" }, "With the chart in focus, the arrow keys, Home and End move along the epochs and values are read out."));
    redraws.push(() => { paint(chips); draw(); });
    new ResizeObserver(() => draw()).observe(canvas);
    refresh();
  }

  // Win / tie / loss --------------------------------------------------------------------------------------------------
  function matrix() {
    const c = view.compare;
    if (c.methods.length < 2) return;
    const state = { test: "paired", group: "", holm: false }, host = el("div", {}), counted = el("p", { class: "lead" });
    const groups = [...new Set(c.groups)];
    function count(pair) {
      const outcomes = [...(state.holm ? pair.h : pair.o)].filter((_, k) => !state.group || c.groups[k] === state.group);
      const n = (letter) => outcomes.filter((o) => o === letter).length;
      return { w: n("W"), t: n("T"), l: n("L"), missing: n("-") };
    }
    // Tests on fewer seeds than planned count, as in Table 3, but say so.
    const thin = (a, b, s) => ![a, b].every((name) => cellOf(name, c.datasets[s]).complete);
    function draw() {
      const rows = c.tests[state.test];
      const body = c.methods.map((name, i) => el("tr", {}, el("th", { scope: "row" }, dot(method(name)), method(name).title), c.methods.map((other, j) => {
        if (i === j) return el("td", { class: "self" });
        const pair = rows[i][j], k = count(pair), made = k.w + k.t + k.l;
        const share = made ? (k.w - k.l) / (made + k.missing) : 0, tone = share > 0 ? "--win" : "--loss";
        const label = made ? `${k.w}/${k.t}/${k.l}${k.missing ? ` ?${k.missing}` : ""}` : NONE;
        const lines = () => [`${method(name).title} against ${method(other).title}`, ...c.datasets.map((d, s) => {
          const o = (state.holm ? pair.h : pair.o)[s];
          return state.group && c.groups[s] !== state.group ? null : `${dataset(d).title}: ${{ W: "win", T: "tie", L: "loss", "-": "not enough seeds" }[o]}${o === "-" ? "" : ` (${signed(pair.x[s])}, ${pText(pair.p[s])}${thin(name, other, s) ? ", seeds missing" : ""})`}`;
        }).filter(Boolean)].join("\n");
        const node = button(label, () => open(lines().split("\n")[0], el("ul", {}, lines().split("\n").slice(1).map((line) => el("li", {}, line)))), { "aria-label": `${method(name).title} against ${method(other).title}: ${label}` });
        return el("td", { class: "cell", style: { background: share ? `rgba(${css(tone)}, ${(0.08 + 0.4 * Math.abs(share)).toFixed(2)})` : "" } }, withTip(node, lines));
      })));
      host.replaceChildren(scroll("Win, tie and loss of every method against every other", el("table", { class: "matrix" },
        el("thead", {}, el("tr", {}, el("th", { class: "text", scope: "col" }, "row against column"), c.methods.map((name) => el("th", { scope: "col" }, method(name).title)))), el("tbody", {}, body))));
      paint(host);
      const at = c.methods.indexOf(view.reference), sum = { w: 0, t: 0, l: 0, missing: 0 };
      let few = 0;
      if (at >= 0) rows[at].forEach((pair, j) => {
        if (!pair) return;
        const k = count(pair);
        for (const key in sum) sum[key] += k[key];
        few += c.datasets.filter((_, s) => pair.o[s] !== "-" && (!state.group || c.groups[s] === state.group) && thin(view.reference, c.methods[j], s)).length;
      });
      counted.textContent = `${c.names[state.test][0].toUpperCase()}${c.names[state.test].slice(1)} at ${c.alpha}${state.holm ? ", adjusted by Holm over the row" : ""}; wins/ties/losses over ${state.group ? `${state.group} data sets` : "all data sets"}.` + (at >= 0 ? ` ${method(view.reference).title} in all: ${sum.w}/${sum.t}/${sum.l}${sum.missing ? `, ${sum.missing} not made for want of seeds` : ""}${few ? `; ${few} of these tests lack seeds` : ""}.` : "");
    }
    section("matrix", "Win / tie / loss", null, [
      choice("Test", Object.entries(c.names), state.test, (v) => { state.test = v; draw(); }),
      groups.length > 1 ? choice("Data sets", [["", "All"], ...groups.map((g) => [g, g])], "", (v) => { state.group = v; draw(); }) : null,
      tick("Holm", false, (v) => { state.holm = v; draw(); })], counted, el("div", { style: { height: "0.7rem" } }), host, view.evidence ? el("ul", { class: "notes" }, el("li", {}, view.evidence)) : null);
    redraws.push(draw);
    draw();
  }

  // Critical difference -----------------------------------------------------------------------------------------------
  function diagram() {
    const r = view.ranks;
    if (r.error) { if (view.compare.methods.length > 1) section("ranks", "Average ranks", r.error, []); return; }
    const k = r.names.length, half = Math.ceil(k / 2), W = 860, left = 170, right = W - 170, top = 62;
    const order = r.names.map((_, i) => i).sort((a, b) => r.average[a] - r.average[b]);
    const x = (rank) => left + ((right - left) * (rank - 1)) / Math.max(1, k - 1);
    const deep = top + 14 + 11 * r.bars.length, H = deep + 22 * half + 14, nodes = [];
    const line = (x1, y1, x2, y2, width = 1, extra = {}) => svg("line", { x1, y1, x2, y2, "stroke-width": width, stroke: "currentColor", ...extra });
    nodes.push(line(x(1), top, x(k), top));
    for (let t = 1; t <= k; t++) nodes.push(line(x(t), top, x(t), top - 6), svg("text", { x: x(t), y: top - 11, "text-anchor": "middle", "font-size": 12 }, String(t)));
    const wide = Math.min(r.cd, k - 1);
    nodes.push(line(x(1), 22, x(1 + wide), 22, 2), line(x(1), 17, x(1), 27, 2), line(x(1 + wide), 17, x(1 + wide), 27, 2),
      svg("text", { x: x(1), y: 12, "font-size": 12, class: "soft" }, `critical difference ${fixed(r.cd)}${r.cd > k - 1 ? " (longer than the axis)" : ""}`));
    r.bars.forEach((bar, b) => {
      const own = r.average.filter((_, i) => bar[i]);
      nodes.push(line(x(Math.min(...own)) - 4, top + 11 + 11 * b, x(Math.max(...own)) + 4, top + 11 + 11 * b, 4, { "stroke-linecap": "round", opacity: 0.55 }));
    });
    order.forEach((i, at) => {
      const onLeft = at < half, y = deep + 22 * (onLeft ? at : k - 1 - at) + 12, edge = onLeft ? left - 14 : right + 14, m = method(r.names[i]);
      nodes.push(svg("path", { d: `M${x(r.average[i])} ${top}V${y}H${edge}`, fill: "none", "stroke-width": 1.3, "data-colour": m.colour, "data-paint": "stroke" }),
        svg("circle", { cx: x(r.average[i]), cy: top, r: 3.6, "data-colour": m.colour, "data-paint": "both" }),
        svg("text", { x: onLeft ? edge - 6 : edge + 6, y: y + 4, "text-anchor": onLeft ? "end" : "start", "font-size": 13, "font-weight": m.name === view.reference ? 700 : 400 }, onLeft ? `${m.title}  ${fixed(r.average[i])}` : `${fixed(r.average[i])}  ${m.title}`));
    });
    const about = `Average rank over ${plural(r.datasets.length, "data set")} (1 = best). A bar joins methods that Nemenyi's test at ${r.alpha} does not tell apart; Friedman ${pText(r.p)}. Who else is in the diagram can change who is told apart.`;
    const left_out = [r.dropped.length ? `Data sets left out as incomplete: ${r.dropped.join(", ")}.` : "", r.left_out.length ? `Methods left out: ${r.left_out.join(", ")}.` : ""].filter(Boolean).join(" ");
    const node = section("ranks", "Average ranks", `${about} ${left_out}`, [], scroll("Critical-difference diagram",
      svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": order.map((i) => `${method(r.names[i]).title} ${fixed(r.average[i])}`).join(", ") }, nodes), "diagram"));
    redraws.push(() => paint(node));
    paint(node);
  }

  // Selection ---------------------------------------------------------------------------------------------------------
  const SHAPES = { o: "circle", "|": "bar", "^": "triangle", s: "square", x: "cross" };
  const RULES = DATA.rules.map(([key, title, colour, mark, legend]) => [key, title, colour, SHAPES[mark], legend]);
  function mark(shape, x, y, colour) {
    const common = { "data-colour": colour, "stroke-width": 1.6 };
    if (shape === "circle") return svg("circle", { cx: x, cy: y, r: 3.2, ...common, "data-paint": "fill" });
    if (shape === "square") return svg("rect", { x: x - 3.2, y: y - 3.2, width: 6.4, height: 6.4, fill: "none", ...common, "data-paint": "stroke" });
    const d = { bar: `M${x} ${y - 5}V${y + 5}`, triangle: `M${x - 4} ${y + 3.4}L${x} ${y - 4}L${x + 4} ${y + 3.4}Z`, cross: `M${x - 3.4} ${y - 3.4}L${x + 3.4} ${y + 3.4}M${x - 3.4} ${y + 3.4}L${x + 3.4} ${y - 3.4}` }[shape];
    return svg("path", { d, fill: "none", ...common, "data-paint": "stroke" });
  }
  function selections() {
    if (!view.selection.length) return;
    const rules = RULES.filter(([key]) => view.selection.some((s) => known(s[key])));
    const host = el("div", {});
    function draw(set) {
      const rows = view.methods.map((m) => {
        const own = view.selection.filter((s) => s.m === m.name && (!set || s.d === set));
        const row = { m: m.name, n: own.length };
        for (const [key] of rules) row[key] = own.length && own.every((s) => known(s[key])) ? mean(own.map((s) => s[key])) : null;
        return row;
      }).filter((row) => row.n);
      const gains = rows.flatMap((row) => rules.map(([key]) => row[key] - row.accuracy)).filter((v, k) => known(v));
      const low = Math.min(0, ...gains), high = Math.max(0.01, ...gains), x = (gain) => 8 + (154 * (gain - low)) / (high - low || 1);
      const strip = (row) => svg("svg", { class: "strip", viewBox: "0 0 170 18", "aria-hidden": "true" }, svg("line", { x1: 4, x2: 166, y1: 9, y2: 9, stroke: "var(--grid)" }), svg("line", { x1: x(0), x2: x(0), y1: 1, y2: 17, stroke: "var(--line-strong)" }),
        rules.filter(([key]) => known(row[key])).map(([key, , colour, shape]) => mark(shape, x(row[key] - row.accuracy), 9, colour)));
      const columns = [nameColumn(), ...rules.map(([key, title]) => ({ title, value: (row) => row[key],
        show: (row) => (known(row[key]) ? [fixed(row[key]), key === "accuracy" ? null : el("span", { class: "sub" }, signed(row[key] - row.accuracy))] : el("span", { class: "none" }, NONE)) })),
        { title: "Points above the last", kind: "opt", value: (row) => row.accuracy_oracle - row.accuracy, show: strip }];
      host.replaceChildren(sortable("Accuracy by rule for choosing the epoch", columns, byKind(rows, (row) => method(row.m))));
    }
    const legend = el("ul", { class: "legend" }, rules.map(([, , colour, shape, title]) => el("li", {}, svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, mark(shape, 6, 6, colour)), title)));
    const node = section("selection", "Which epoch is reported", "The last epoch is the result. Beside it: what other rules would report, mean over finished seeds, and the difference. The oracle looks at test labels; covering rate and approximated accuracy do not.",
      [choice("Data set", [["", "Mean over data sets"], ...view.datasets.map((d) => [d.name, d.title])], "", draw)], host, legend);
    draw("");
    redraws.push(() => paint(node));
  }

  // Variants ----------------------------------------------------------------------------------------------------------
  function changed() {
    if (!view.variants.length) return;
    const columns = [{ title: "Variant", text: true, value: (row) => row.label, show: (row) => [dot(row), row.label, row.title ? el("span", { class: "tag" }, row.title) : null] },
      { title: "Data set", text: true, value: (row) => dataset(row.d).title, show: (row) => dataset(row.d).title },
      { title: "Accuracy", kind: "cell", value: (row) => row.mean, show: (row) => withTip(button("", () => open(`${row.label} on ${dataset(row.d).title}`, el("p", { class: "lead" }, row.values.map(([s, v]) => `seed ${s}: ${fixed(v)}`).join(" · ")), copyable(row.command)), {}, row.n ? [fixed(row.mean), el("span", { class: "std" }, ` ±${fixed(row.std)}`)] : NONE, row.n < row.expected ? el("span", { class: "short" }, ` ${row.n}/${row.expected}`) : null), () => row.values.map(([s, v]) => `seed ${s}: ${fixed(v)}`).join("\n") || "no finished run") },
      { title: "Against unchanged", value: (row) => row.gain, show: (row) => el("span", { class: known(row.gain) ? "" : "none" }, signed(row.gain)) },
      ...(view.variants.some((row) => row.published) ? [{ title: "Published", value: (row) => (row.published || [null])[0], show: (row) => (row.published ? fixed(row.published[0]) : NONE) }] : [])];
    section("variants", "Variants", "Runs of a method with values of its own changed: ablations and sensitivity.", [], sortable("Variants", columns, [{ title: "", rows: view.variants }]));
  }

  // Cost --------------------------------------------------------------------------------------------------------------
  function cost() {
    if (!view.cost.length) return;
    const host = el("div", {});
    function draw(set) {
      const rows = view.methods.map((m) => view.cost.find((c) => c.m === m.name && c.d === set)).filter(Boolean);
      const fastest = Math.min(...rows.map((r) => r.seconds_per_epoch).filter(known));
      const column = (title, value, digits = 0) => ({ title, value, show: (row) => grouped(value(row), digits) });
      const columns = [nameColumn(), { title: "Forward passes", kind: "fold", value: (row) => parseFloat(method(row.m).forwards), show: (row) => method(row.m).forwards || NONE },
        { title: "Seconds per epoch", value: (row) => row.seconds_per_epoch, show: (row) => fixed(row.seconds_per_epoch) }, { title: "Times fastest", value: (row) => row.seconds_per_epoch / fastest, show: (row) => (known(row.seconds_per_epoch) ? `${fixed(row.seconds_per_epoch / fastest, 1)} ×` : NONE) },
        column("Images/s", (row) => row.images_per_second), column("Peak MB", (row) => row.peak_memory_mb), column("Parameters", (row) => row.parameters),
        { title: "Time per run", value: (row) => row.seconds_per_epoch * row.epochs, show: (row) => lasting(row.seconds_per_epoch * row.epochs) },
        { title: "Views", text: true, kind: "fold", value: (row) => (method(row.m).views || []).join(" "), show: (row) => (method(row.m).views || []).join(" + ") || NONE },
        { title: "State kept", text: true, kind: "fold", value: (row) => method(row.m).state || "", show: (row) => method(row.m).state || NONE }];
      const devices = [...new Set(rows.flatMap((row) => row.devices))];
      host.replaceChildren(sortable("Cost of each method", columns, byKind(rows, (row) => method(row.m))), devices.length > 1 ? el("p", { class: "warn" }, `Measured on different devices, so times do not compare: ${devices.join(", ")}.`) : el("ul", { class: "notes" }, el("li", {}, `Medians over finished runs on ${devices[0] || "an unknown device"}. Forward passes are per training image and step.`)));
    }
    draw(view.datasets[0].name);
    section("cost", "Cost", null, [choice("Data set", view.datasets.map((d) => [d.name, d.title]), view.datasets[0].name, draw)], host);
  }

  // Data cards --------------------------------------------------------------------------------------------------------
  function histogram(card) {
    const most = Math.max(...card.histogram), top = card.histogram.length - [...card.histogram].reverse().findIndex((v) => v > 0), bars = card.histogram.slice(0, top), step = 300 / Math.max(2, bars.length);
    return svg("svg", { viewBox: "0 0 300 84", preserveAspectRatio: "none", role: "img", "aria-label": `Set sizes from 1 to ${card.largest}, average ${fixed(card.average)}` },
      bars.map((v, k) => svg("rect", { x: k * step + step * 0.08, y: 82 - (80 * v) / most, width: step * 0.84, height: (80 * v) / most, fill: "var(--accent)", opacity: 0.75 }, svg("title", {}, `${k} candidates: ${plural(v, "image")}`))));
  }
  function cards() {
    const fact = (name, value) => (value === null || value === "" || value === NONE ? [] : [el("dt", {}, name), el("dd", {}, value)]);
    const card = (d) => {
      const first = d.candidates[0], sizes = d.candidates.map((c) => c.average), rows = known(d.imbalance) ? first && first.rows : d.train;
      return el("article", { class: "card" }, el("h3", {}, d.title, el("span", { class: "tag" }, d.group)),
        el("dl", {}, fact("Train / test", d.train || d.test ? `${grouped(rows || NaN)} / ${grouped(d.test || NaN)}` : NONE), fact("Long tail", known(d.imbalance) ? `${grouped(d.imbalance, 4)} : 1` : NONE), fact("Classes", d.classes ? grouped(d.classes) : NONE), fact("Network", d.network),
          fact("Training", `${d.recipe.epochs} epochs, batch ${d.recipe.batch}`), fact("Generator", `${d.generator}, rate ${grouped(d.rate, 4)}${known(d.noise) ? `, noise ${grouped(d.noise, 4)}` : ""}`),
          fact("Average set", first ? fixed(mean(sizes)) : d.target ? `${fixed(d.target)} asked for` : NONE), fact("Published", d.published ? fixed(d.published.avg_cls) : NONE),
          fact("Without true label", known(d.without_truth) ? `${fixed(d.without_truth, 1)} %` : NONE), fact("One candidate", first ? `${fixed(100 * mean(d.candidates.map((c) => c.singletons)), 1)} %` : NONE), fact("Temperature", first && known(first.temperature) ? fixed(first.temperature, 3) : NONE),
          fact("SHA-256", first ? el("span", { class: "mono" }, d.candidates.slice(0, 3).map((c) => c.sha256.slice(0, 7)).join(" ") + (d.candidates.length > 3 ? " …" : "")) : NONE)),
        first ? [histogram(first), el("div", { class: "sub" }, `images by number of candidates, 1 to ${first.largest}, seed ${first.seed}`)] : el("p", { class: "sub" }, "The candidate files are not in this results folder."));
    };
    section("data", "Data", "What the runs were trained on. Candidate sets are drawn once per seed and shared by all methods.", [], el("div", { class: "cards" }, view.datasets.map(card)));
  }

  // Failures, environment ---------------------------------------------------------------------------------------------
  function failed() {
    const rows = view.failures;
    const columns = [{ title: "Run", text: true, value: (row) => row.label, show: (row) => [dot(method(row.m)), row.label] }, { title: "Data set", text: true, value: (row) => dataset(row.d).title, show: (row) => dataset(row.d).title },
      { title: "Seed", value: (row) => row.seed, show: (row) => String(row.seed) }, { title: "Status", text: true, value: (row) => row.status, show: (row) => el("span", { class: `tag ${["failed", "diverged", "oom"].includes(row.status) ? "bad" : "mid"}` }, row.status) },
      { title: "Epochs", value: (row) => row.epochs_done, show: (row) => `${row.epochs_done} / ${row.epochs}` }, { title: "Reason", text: true, kind: "wrap", value: (row) => row.reason, show: (row) => row.reason || NONE },
      { title: "Again", value: (row) => row.label, show: (row) => button("Command", () => open(`${row.label} on ${dataset(row.d).title}, seed ${row.seed}`, copyable(row.command)), { "aria-haspopup": "dialog" }) }];
    section("failures", "Runs that are not done", rows.length ? "None of these is in a number above." : "Every run that was started has finished.", [], rows.length ? sortable("Runs that are not done", columns, [{ title: "", rows }]) : null);
  }
  function reproduce() {
    const mixed = view.environment.filter((e) => e.values.length > 1).map((e) => e.key.replaceAll("_", " "));
    const find = (key) => (view.environment.find((e) => e.key === key) || { values: [["unknown"]] }).values[0][0];
    const commands = view.cells.filter((c) => c.command).map((c) => c.command).concat(view.variants.map((v) => v.command));
    const commit = find("commit").replace(/\+$/, ""), all = `./reproduce.sh table2 --profile ${view.known ? view.profile : `${view.profile}.toml`}`;
    const rows = view.environment.map((e) => ({ ...e }));
    const columns = [{ title: "What", text: true, value: (row) => row.key, show: (row) => [row.key.replaceAll("_", " "), row.values.length > 1 ? el("span", { class: "tag mid" }, "mixed") : null] },
      { title: "Value (runs)", text: true, kind: "wrap", value: (row) => row.values[0][0], show: (row) => row.values.map(([v, n]) => `${v} (${n})`).join(", ") + (row.more ? ` and ${row.more} more` : "") }];
    section("reproduce", "Environment and commands", "Same commit, same configuration and same candidate sets give the same numbers, on a CPU bit for bit.", [],
      mixed.length ? el("p", { class: "warn" }, `Runs of different ${mixed.join(", ")} stand side by side on this page.`) : null, el("div", { style: { height: "0.8rem" } }),
      sortable("Environment", columns, [{ title: "", rows }]),
      /^[0-9a-f]{7,40}$/.test(commit) ? copyable(`git checkout ${commit}`) : null, view.setting ? null : copyable(all),
      el("details", {}, el("summary", {}, `The command of each cell (${commands.length})`), el("pre", { tabindex: 0 }, commands.join("\n"))));
  }

  // All of it ---------------------------------------------------------------------------------------------------------
  function show(k) {
    view = DATA.views[k];
    redraws = [];
    page.replaceChildren();
    for (const part of [overview, accuracy, chart, matrix, diagram, selections, changed, cost, cards, failed, reproduce]) part();
    const short = { results: "Accuracy", curves: "Curves", matrix: "Win/tie/loss", ranks: "Ranks", selection: "Epoch", variants: "Variants", cost: "Cost", data: "Data", failures: "Not done", reproduce: "Reproduce" };
    document.getElementById("nav").replaceChildren(...[...page.querySelectorAll("section")].map((s) => el("a", { href: `#${s.id}` }, short[s.id])));
    document.title = `Candid report: ${view.title}`;
    paint();
    spy();
  }
  function spy() {
    const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
    const observer = new IntersectionObserver((entries) => entries.forEach((entry) => {
      if (!entry.isIntersecting) return;
      links.forEach((a) => a.removeAttribute("aria-current"));
      if (links.has(entry.target.id)) links.get(entry.target.id).setAttribute("aria-current", "true");
    }), { rootMargin: "-20% 0px -70% 0px" });
    page.querySelectorAll("section").forEach((s) => observer.observe(s));
  }
  const store = { get: () => { try { return localStorage.getItem("candid-theme"); } catch { return null; } }, set: (v) => { try { localStorage.setItem("candid-theme", v); } catch { /* a page from a file may have no storage */ } } };
  const system = matchMedia("(prefers-color-scheme: dark)");
  function theme(value) {
    document.documentElement.dataset.theme = value;
    redraws.forEach((draw) => draw());
    paint();
  }
  system.addEventListener("change", () => { if (!store.get()) theme(system.matches ? "dark" : "light"); });
  document.getElementById("theme").addEventListener("click", () => { const next = dark() ? "light" : "dark"; store.set(next); theme(next); });
  theme(store.get() || (system.matches ? "dark" : "light"));
  const picker = document.getElementById("view");
  picker.append(...DATA.views.map((v, k) => el("option", { value: k }, v.title)));
  picker.addEventListener("change", () => { show(Number(picker.value)); scrollTo(0, 0); });
  picker.disabled = DATA.views.length < 2;
  show(0);
})();
