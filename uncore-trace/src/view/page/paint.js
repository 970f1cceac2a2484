// Colours, and the drawing of a plot.

/** The colours of Okabe and Ito, which are distinct with any kind of colour vision, and a dark red. */
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#994455"];
/** Tenants beyond the first eight have the same colours again, with lines or dots. */
const TEXTURES = ["plain", "rising", "dots", "level", "falling"];
/** Opacity of an area at a confidence of 0. */
const PALEST = 0.3;
/** Steps between that and the full colour. */
const SHADES = 5;

let theme = null;

/** The current colours of the style sheet. */
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  theme = {
    ground: of("--card"), ink: of("--ink"), muted: of("--muted"), line: of("--line"), peak: of("--peak"),
    loss: of("--loss"), cpu: of("--cpu"), mark: of("--mark"), others: of("--others"), total: of("--total"),
    nobody: { "(idle)": of("--idle"), "(irq)": of("--irq"), "(softirq)": of("--softirq") },
    unattributed: of("--unattributed"), fills: new Map(),
  };
}

const parts = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

/** A colour blended with the background. */
function mix(colour, part) {
  const [over, under] = [parts(colour), parts(theme.ground)];
  const hex = over.map((value, at) => Math.round(value * part + under[at] * (1 - part)));
  return "#" + hex.map((value) => value.toString(16).padStart(2, "0")).join("");
}

function colourOf(tenant) {
  const { name, kind } = TENANTS[tenant];
  if (kind === "others") return [theme.others, "dots"];
  if (kind === "nobody") {
    return name in theme.nobody ? [theme.nobody[name], "plain"] : [theme.unattributed, "rising"];
  }
  const texture = TEXTURES[Math.floor(tenant / COLOURS.length) % TEXTURES.length];
  return [COLOURS[tenant % COLOURS.length], texture];
}

/** The fill of a tenant's area: shade 0 is the palest. */
function fillOf(tenant, shade, context) {
  const key = tenant * SHADES + shade;
  const ready = theme.fills.get(key);
  if (ready) return ready;
  const [colour, texture] = colourOf(tenant);
  const shown = mix(colour, PALEST + (1 - PALEST) * shade / (SHADES - 1));
  const fill = texture === "plain" ? shown : context.createPattern(tile(shown, texture), "repeat");
  theme.fills.set(key, fill);
  return fill;
}

/** A pattern: a small square that is repeated. */
function tile(colour, texture) {
  const size = Math.round(6 * devicePixelRatio);
  const canvas = make("canvas", { width: size, height: size });
  const context = canvas.getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, size, size);
  context.strokeStyle = context.fillStyle = theme.ground;
  context.lineWidth = size / 6;
  context.globalAlpha = 0.75;
  context.beginPath();
  if (texture === "dots") context.arc(size / 2, size / 2, size / 5, 0, 7);
  for (const at of texture === "rising" || texture === "falling" ? [-size, 0, size] : []) {
    const [from, to] = texture === "rising" ? [size + 1, -1] : [-1, size + 1];
    context.moveTo(at - 1, from);
    context.lineTo(at + size + 1, to);
  }
  if (texture === "level") {
    context.moveTo(0, size / 2);
    context.lineTo(size, size / 2);
  }
  if (texture === "dots") context.fill();
  else context.stroke();
  return canvas;
}

function paintSwatch(canvas) {
  const context = canvas.getContext("2d");
  context.fillStyle = fillOf(Number(canvas.dataset.tenant), SHADES - 1, context);
  context.fillRect(0, 0, canvas.width, canvas.height);
}

/** The shade of a confidence; areas of no tenant have the full colour. */
function shadeOf(tenant, confidence) {
  if (TENANTS[tenant].kind === "nobody" || Number.isNaN(confidence)) return SHADES - 1;
  return Math.round(confidence / 100 * (SHADES - 1));
}

/** The visible time as columns of whole pixels: the buckets and the position of each. */
function columns(u) {
  const [first, last] = buckets(state.from, state.to);
  const x = (seconds) => Math.round(u.valToPos(seconds, "x", true));
  const [left, right] = [u.bbox.left, u.bbox.left + u.bbox.width];
  const found = [];
  for (let at = first; at < last;) {
    const from = Math.max(left, x(beginOf(at)));
    let next = at + 1;
    let to = x(endOf(at));
    // Several buckets in one pixel are one column.
    while (next < last && to <= from) to = x(endOf(next++));
    found.push({ at, next, from, to: Math.min(right, Math.max(to, from + 1)) });
    at = next;
  }
  return found;
}

/** The mean of a column; NaN if nothing is known. */
const meanIn = (values, { at, next }) => (next === at + 1 ? values[at] : mean(values, at, next));

function extremeIn(values, { at, next }, better) {
  let found = NaN;
  for (let bucket = at; bucket < next; bucket++) {
    if (Number.isFinite(values[bucket]) && !better(found, values[bucket])) found = values[bucket];
  }
  return found;
}

/** Draws everything between the axes. */
function paint(u, plot) {
  const { ctx, bbox } = u;
  const cells = columns(u);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const y = (value) => Math.round(u.valToPos(value, "y", true));
  const area = plot.areas.find((its) => its.tenant === state.tenant);
  if (state.tenant === null) paintStack(ctx, cells, y, plot);
  else paintOne(ctx, cells, y, plot, area);
  paintGaps(ctx, cells, bbox, plot);
  paintExtremes(ctx, cells, y, plot);
  if (plot.peak) paintPeak(u, plot.peak);
  paintMarks(u);
  ctx.restore();
}

/** Draws stacked areas, each in runs of one shade without gaps. */
function paintStack(ctx, cells, y, plot) {
  const floor = new Float64Array(cells.length);
  for (const area of plot.areas) {
    const top = new Float64Array(cells.length);
    const shades = cells.map((cell, at) => {
      const value = meanIn(area.value, cell);
      top[at] = floor[at] + (value > 0 ? value : 0);
      return value > 0 ? shadeOf(area.tenant, meanIn(area.confidence, cell)) : -1;
    });
    for (let at = 0; at < cells.length;) {
      let next = at + 1;
      while (next < cells.length && shades[next] === shades[at]) next++;
      if (shades[at] >= 0) {
        ctx.fillStyle = fillOf(area.tenant, shades[at], ctx);
        fillBetween(ctx, cells, at, next, (k) => y(floor[k]), (k) => y(top[k]));
      }
      at = next;
    }
    floor.set(top);
  }
}

function fillBetween(ctx, cells, first, last, low, high) {
  ctx.beginPath();
  for (let at = first; at < last; at++) {
    ctx.lineTo(cells[at].from, high(at));
    ctx.lineTo(cells[at].to, high(at));
  }
  for (let at = last - 1; at >= first; at--) {
    ctx.lineTo(cells[at].to, low(at));
    ctx.lineTo(cells[at].from, low(at));
  }
  ctx.fill();
}

/** Draws one tenant in front of all others, with its interval. */
function paintOne(ctx, cells, y, plot, area) {
  const total = cells.map((cell) => meanIn(plot.mean, cell));
  ctx.fillStyle = theme.total;
  fillBetween(ctx, cells, 0, cells.length, () => y(0), (k) => y(total[k] || 0));
  if (!area) return;
  const value = cells.map((cell) => meanIn(area.value, cell) || 0);
  const end = (name, at) => {
    const part = meanIn(area[name], cells[at]) / 100;
    return Number.isNaN(part) ? value[at] : Math.min(value[at] * part, Math.max(total[at], value[at]));
  };
  const [low, high] = ["low", "high"].map((name) => value.map((_, at) => end(name, at)));
  const colour = colourOf(area.tenant)[0];
  // From the lower to the higher end of the interval.
  for (const [part, from, to] of [[1, null, low], [0.65, low, value], [0.35, value, high]]) {
    ctx.fillStyle = mix(colour, part);
    fillBetween(ctx, cells, 0, cells.length, (k) => y(from === null ? 0 : from[k]), (k) => y(to[k]));
  }
}

/** Hatches time in which nothing is known; partly known time has a strip at the top. */
function paintGaps(ctx, cells, bbox, plot) {
  ctx.fillStyle = theme.gap ??= ctx.createPattern(tile(theme.line, "falling"), "repeat");
  for (const cell of cells) {
    const isGap = Number.isNaN(meanIn(plot.mean, cell));
    const part = plot.known ? extremeIn(plot.known, cell, (a, b) => a <= b) : 100;
    if (isGap) ctx.fillRect(cell.from, bbox.top, cell.to - cell.from, bbox.height);
    else if (part < 100) ctx.fillRect(cell.from, bbox.top, cell.to - cell.from, 6 * devicePixelRatio);
  }
}

/** Draws a band from the lowest to the highest window of columns with several windows, with a line at its top. */
function paintExtremes(ctx, cells, y, plot) {
  if (!plot.max && cells.every(({ at, next }) => next === at + 1)) return;
  const high = cells.map((cell) => extremeIn(plot.max ?? plot.mean, cell, (a, b) => a >= b));
  const low = cells.map((cell) => extremeIn(plot.min ?? plot.mean, cell, (a, b) => a <= b));
  ctx.fillStyle = ctx.strokeStyle = theme.ink;
  ctx.globalAlpha = 0.12;
  for (let at = 0; at < cells.length; at++) {
    if (!Number.isNaN(high[at])) fillBetween(ctx, cells, at, at + 1, (k) => y(low[k]), (k) => y(high[k]));
  }
  ctx.globalAlpha = 0.5;
  ctx.lineWidth = devicePixelRatio;
  strokeSteps(ctx, cells, (k) => y(high[k]));
  ctx.globalAlpha = 1;
}

function strokeSteps(ctx, cells, level) {
  ctx.beginPath();
  let drawn = false;
  cells.forEach(({ from, to }, at) => {
    const height = level(at) + 0.5;
    if (Number.isNaN(height)) {
      drawn = false;
      return;
    }
    if (drawn) ctx.lineTo(from, height);
    else ctx.moveTo(from, height);
    ctx.lineTo(to, height);
    drawn = true;
  });
  ctx.stroke();
}

function paintPeak(u, peak) {
  const { ctx, bbox } = u;
  const height = Math.round(u.valToPos(peak.rate, "y", true)) + 0.5;
  const inside = height >= bbox.top;
  const text = `peak ${rate(peak.rate, "bytes")}${inside ? "" : " (above this)"}`;
  ctx.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.textBaseline = "top";
  if (inside) {
    ctx.strokeStyle = theme.peak;
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.setLineDash([6, 4].map((length) => length * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(bbox.left, height);
    ctx.lineTo(bbox.left + bbox.width, height);
    ctx.stroke();
    ctx.setLineDash([]);
  }
  const [right, top] = [bbox.left + bbox.width - 6 * devicePixelRatio, Math.max(bbox.top, height) + 4 * devicePixelRatio];
  ctx.strokeStyle = theme.ground;
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.lineJoin = "round";
  ctx.strokeText(text, right, top);
  ctx.fillStyle = theme.peak;
  ctx.fillText(text, right, top);
}

/** Draws losses, changes of CPUs and marks: a line at their time, and a triangle at the top. */
function paintMarks(u) {
  const { ctx, bbox } = u;
  const size = 5 * devicePixelRatio;
  const x = (seconds) => Math.round(u.valToPos(Math.min(Math.max(seconds, state.from), state.to), "x", true)) + 0.5;
  const near = MARKS.filter((mark) => mark.to >= state.from && mark.from <= state.to);
  let free = bbox.left;
  for (const mark of near.filter(({ label }) => label)) {
    const from = x(mark.from);
    if (from >= free) free = paintLabel(u, mark.label, from + 1.5 * size);
  }
  for (const mark of near) {
    const [from, to] = [x(mark.from), x(mark.to)];
    ctx.strokeStyle = ctx.fillStyle = theme[mark.kind];
    // The line of a loss crosses the areas; a mark only shows a time.
    ctx.globalAlpha = mark.kind === "loss" ? 0.25 : 0.45;
    if (to - from > 2) {
      ctx.fillRect(from, bbox.top, to - from - devicePixelRatio, mark.kind === "loss" ? bbox.height : 0.6 * size);
    }
    ctx.globalAlpha = 1;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(mark.kind === "loss" ? [] : [3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(from, bbox.top);
    ctx.lineTo(from, bbox.top + bbox.height);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(from - size, bbox.top);
    ctx.lineTo(from + size, bbox.top);
    ctx.lineTo(from, bbox.top + 1.6 * size);
    ctx.fill();
  }
  ctx.setLineDash([]);
}

/** Draws the name of a mark; returns where the next one has room. */
function paintLabel({ ctx, bbox }, name, left) {
  const text = name.length > 24 ? `${name.slice(0, 23)}…` : name;
  ctx.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  const top = bbox.top + 4 * devicePixelRatio;
  ctx.strokeStyle = theme.ground;
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.lineJoin = "round";
  ctx.strokeText(text, left, top);
  ctx.fillStyle = theme.mark;
  ctx.fillText(text, left, top);
  return left + ctx.measureText(text).width + 8 * devicePixelRatio;
}
