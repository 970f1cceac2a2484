// A plot with its heading, legend, and the text at the pointer.

/** All cards of the page, in its order. */
const CARDS = [];
/** Number of tenants that are named below a plot and at the pointer. */
const NAMES = 8;
/** Steps between the lines of the time axis, seconds. */
const STEPS = [1e-6, 1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300,
  600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

const WAYS = {
  in: "in: towards the CPUs",
  out: "out: away from the CPUs",
  both: "in and out together",
};

/** A card for a plot, which is drawn when it comes into view. */
function card(plot) {
  const title = plot.direction ? WAYS[plot.direction] : plot.name;
  const its = {
    plot, u: null,
    figures: make("span", { className: "figures" }),
    space: make("div", { className: "space", tabIndex: 0, role: "group", "aria-roledescription": "plot" }),
    names: make("p", { className: "names" }),
  };
  its.element = make("article", { className: "plot" },
    make("h4", {}, make("span", {}, title), its.figures), its.space, its.names);
  its.space.addEventListener("keydown", (event) => onKey(event, its));
  its.space.addEventListener("focus", () => place(its, cursorOf(its)));
  its.space.addEventListener("blur", hideTip);
  watcher.observe(its.element);
  CARDS.push(its);
  return its;
}

const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const its = CARDS.find((card) => card.element === target);
    if (!its) continue;
    its.near = isIntersecting;
    if (isIntersecting) refresh(its);
  }
}, { rootMargin: "300px" });

/** Draws a card, if it is visible. */
function refresh(its) {
  if (!its.near) {
    its.stale = true;
    return;
  }
  its.stale = false;
  describe(its);
  if (its.u === null) {
    its.u = chart(its);
    return;
  }
  its.u.setSize({ width: its.space.clientWidth, height: heightOf() });
  its.u.setScale("x", { min: state.from, max: state.to });
}

const heightOf = () => (innerWidth < 600 ? 180 : 220);

/** The upper end of the scale: above the highest value, and above a peak that is near. */
function ceiling(plot) {
  const { highest, parts } = seen(plot);
  let most = Number.isFinite(highest) ? highest : 0;
  if (plot.peak && most > 0.3 * plot.peak.rate) most = Math.max(most, plot.peak.rate);
  const one = state.tenant === null ? null : plot.areas.find((area) => area.tenant === state.tenant);
  if (one) {
    // A single tenant is scaled to the plot.
    const [first, last] = buckets(state.from, state.to);
    let high = 0;
    for (let at = first; at < last; at++) {
      const value = one.value[at] * (1 + Math.min(0.5, (one.high[at] || 100) / 100 - 1));
      if (value > high) high = value;
    }
    if (high > 0 && high < most / 5) most = high;
  }
  return (parts.length > 0 && most > 0 ? most : 1) * 1.08;
}

/** Room for the labels of an axis. */
function widthOf(labels) {
  const context = make("canvas").getContext("2d");
  context.font = "12px system-ui, sans-serif";
  return Math.max(60, ...labels.map((label) => Math.ceil(context.measureText(label).width) + 16));
}

function chart(its) {
  const { plot } = its;
  const middles = Float64Array.from({ length: TIME.count }, (_, at) => (beginOf(at) + endOf(at)) / 2);
  const axis = { stroke: () => theme.muted, font: "12px system-ui, sans-serif", grid: { stroke: () => theme.line, width: 1 },
    ticks: { stroke: () => theme.line, width: 1, size: 4 } };
  const options = {
    width: its.space.clientWidth, height: heightOf(),
    legend: { show: false },
    padding: [8, 12, 0, 0],
    scales: {
      x: { time: false, range: () => [state.from, state.to] },
      y: { range: () => [0, ceiling(plot)] },
    },
    axes: [
      { ...axis, incrs: STEPS, space: 90, size: 32, values: (_, ticks, __, ___, step) => ticks.map((at) => clock(at, step)) },
      { ...axis, size: (_, labels) => widthOf(labels ?? []), space: 36, values: (_, ticks) => ticks.map((value) => rate(value, plot.unit)) },
    ],
    series: [{}, { paths: () => null, points: { show: false } }],
    cursor: {
      y: false, points: { show: false },
      drag: { x: true, y: false, setScale: false },
      // Other plots show the position of the pointer; `look` tells them the selected time.
      sync: { key: "time", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      bind: { dblclick: () => () => { look(TIME.begin, TIME.end); return null; } },
    },
    hooks: {
      draw: [(u) => paint(u, plot)],
      setSelect: [(u) => {
        if (u.select.width < 4) return;
        look(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }],
      setCursor: [(u) => {
        if (u.cursor.event) showTip(its);
      }],
    },
  };
  const u = new uPlot(options, [middles, plot.mean], its.space);
  u.over.addEventListener("mouseleave", hideTip);
  return u;
}

/** The texts of a plot, for the visible time. */
function describe(its) {
  const { plot } = its;
  const { mean, highest, parts } = seen(plot);
  const some = parts.filter(({ mean }) => mean > 0).sort((a, b) => b.mean - a.mean);
  const texts = [`${rate(mean, plot.unit)} on average`, `${rate(highest, plot.unit)} at most`];
  if (plot.peak) texts.push(`${percent(mean / plot.peak.rate)} and ${percent(highest / plot.peak.rate)} of the peak`);
  its.figures.textContent = texts.join(" · ");
  if (plot.peak) {
    const other = plot.peak.other ? `; ${rate(plot.peak.other, "bytes")} as of ${plot.peak.other_source}` : "";
    its.figures.title = `Peak ${rate(plot.peak.rate, "bytes")}, ${plot.peak.source}${other}`;
  }
  const named = some.slice(0, NAMES).map(({ tenant, part }) =>
    tenantButton(tenant, undefined, make("span", { className: "part" }, percent(part))));
  const rest = [];
  if (some.length > NAMES) {
    const more = make("button", { type: "button", className: "more" }, `and ${some.length - NAMES} more`);
    more.addEventListener("click", () => linesOf(plot.place));
    rest.push(more);
  }
  const nothing = state.tenant !== null && !parts.some(({ tenant }) => tenant === state.tenant);
  if (nothing) named.unshift(make("span", { className: "muted" }, absent(plot)));
  its.names.replaceChildren(...named, ...rest);
  const best = some.slice(0, 3).map(({ tenant, part }) => `${TENANTS[tenant].name} ${percent(part)}`).join(", ");
  its.space.setAttribute("aria-label", `${plot.name}: ${texts.join(", ")}. ${best}`);
}

/** Why the selected tenant has no area in a plot. */
function absent(plot) {
  const { name } = TENANTS[state.tenant];
  const of = (kind) => plot.areas.filter(({ tenant }) => TENANTS[tenant].kind === kind);
  // `(device)` always has an area of its own, whatever its size.
  const largest = of("tenant").filter(({ tenant }) => TENANTS[tenant].name !== "(device)").length;
  return of("others").length > 0 ? `${name} is not among the largest ${largest} here; (others) may have a part of it.`
    : `${name} had nothing here.`;
}

/** The values at the pointer. */
function showTip(its) {
  const { u, plot } = its;
  const at = u.cursor.idx;
  if (at === null || at === undefined || u.cursor.left < 0) return hideTip();
  const total = plot.mean[at];
  const lines = [make("p", { className: "time" }, `${clock(beginOf(at), TIME.bucket)} – ${clock(endOf(at), TIME.bucket)}`,
    make("span", { className: "muted" }, wall(beginOf(at))))];
  if (Number.isNaN(total)) {
    lines.push(make("p", {}, "not known"));
  } else {
    const full = plot.peak ? `, ${percent(total / plot.peak.rate)} of the peak` : "";
    lines.push(make("p", {}, make("b", {}, rate(total, plot.unit)), full));
    if (plot.max && plot.max[at] > total) {
      lines.push(make("p", { className: "muted" }, `windows from ${rate(plot.min[at], plot.unit)} to ${rate(plot.max[at], plot.unit)}`));
    }
    if (plot.known && plot.known[at] < 100) lines.push(make("p", { className: "muted" }, `of ${plot.known[at]} % of this time, the rest is not known`));
  }
  const some = plot.areas.filter((area) => area.value[at] > 0)
    .filter((area) => state.tenant === null || area.tenant === state.tenant)
    .sort((a, b) => b.value[at] - a.value[at]);
  const rows = some.slice(0, NAMES).map((area) => {
    const value = area.value[at];
    const [low, high] = [value * area.low[at] / 100, Math.min(total, value * area.high[at] / 100)];
    const sure = Number.isNaN(area.confidence[at]) || TENANTS[area.tenant].kind === "nobody" ? ""
      : `${range(low, Math.max(value, high), plot.unit)}${plot.unit === "bytes" ? "/s" : ""}, confidence ${(area.confidence[at] / 100).toFixed(2)}`;
    return make("tr", {}, make("td", {}, swatch(area.tenant)), make("td", { className: "name" }, TENANTS[area.tenant].name),
      make("td", {}, rate(value, plot.unit)), make("td", {}, percent(value / total)), make("td", { className: "muted" }, sure));
  });
  lines.push(make("table", {}, ...rows));
  if (some.length > NAMES) lines.push(make("p", { className: "muted" }, `and ${some.length - NAMES} more`));
  const near = MARKS.filter((mark) => mark.from <= endOf(at) && mark.to >= beginOf(at)).slice(0, 3);
  lines.push(...near.map((mark) => make("p", { className: mark.kind }, `▼ ${mark.text}`)));
  const tip = find("tip");
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const over = u.over.getBoundingClientRect();
  const x = over.left + u.cursor.left;
  const left = x + 16 + tip.offsetWidth < innerWidth ? x + 16 : Math.max(4, x - 16 - tip.offsetWidth);
  tip.style.left = `${left}px`;
  // Below the plot or above it, where there is room, so that it hides nothing.
  const [below, above] = [over.bottom + 34, over.top - 10 - tip.offsetHeight];
  const top = below + tip.offsetHeight < innerHeight ? below : above >= 4 ? above : Math.min(over.top, innerHeight - tip.offsetHeight - 8);
  tip.style.top = `${Math.max(4, top)}px`;
}

function hideTip() {
  find("tip").hidden = true;
}

/** The bucket at the pointer of a plot, or in the middle of the visible time. */
function cursorOf(its) {
  const [first, last] = buckets(state.from, state.to);
  const at = its.u?.cursor.idx;
  return at >= first && at < last ? at : Math.floor((first + last) / 2);
}

/** Puts the pointer of a plot at a bucket. */
function place(its, at) {
  if (!its.u) return;
  const [first, last] = buckets(state.from, state.to);
  const inside = Math.max(first, Math.min(last - 1, at));
  const middle = (beginOf(inside) + endOf(inside)) / 2;
  its.u.setCursor({ left: its.u.valToPos(middle, "x"), top: 10 });
  showTip(its);
}

/** Keys of a plot: arrows move along it, + and - zoom, 0 shows all of it. */
function onKey(event, its) {
  const [first, last] = buckets(state.from, state.to);
  const step = Math.max(1, Math.round((last - first) / 200));
  const sign = event.key === "ArrowLeft" ? -1 : 1;
  const keys = {
    ArrowLeft: () => (event.shiftKey ? shift(sign) : place(its, cursorOf(its) + sign * step)),
    ArrowRight: () => (event.shiftKey ? shift(sign) : place(its, cursorOf(its) + sign * step)),
    "+": () => zoom(0.5, beginOf(cursorOf(its))),
    "=": () => zoom(0.5, beginOf(cursorOf(its))),
    "-": () => zoom(2, beginOf(cursorOf(its))),
    0: () => look(TIME.begin, TIME.end),
    Escape: () => { single(null); hideTip(); },
  };
  const act = keys[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
}
