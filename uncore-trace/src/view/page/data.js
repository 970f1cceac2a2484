// The data block, with its columns as arrays; and the visible part of it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const TIME = DATA.time;
const TENANTS = DATA.tenants.map(([name, kind]) => ({ name, kind }));

/** The user's selection: a time span, and one tenant or all. */
const state = { from: TIME.begin, to: TIME.end, tenant: null };

/** A column of numbers, NaN if not known: `[COUNT, NUMBER]` stands for several. */
function column(entries) {
  const numbers = new Float64Array(TIME.count);
  let at = 0;
  for (const entry of entries) {
    if (Array.isArray(entry)) {
      numbers.fill(entry[1] ?? NaN, at, at + entry[0]);
      at += entry[0];
    } else {
      numbers[at++] = entry ?? NaN;
    }
  }
  return numbers;
}

/** Makes the columns of a plot or an area when they are first used. */
function lazily(object, names) {
  for (const name of names) {
    const entries = object[name];
    if (!Array.isArray(entries)) continue;
    let numbers = null;
    Object.defineProperty(object, name, { get: () => (numbers ??= column(entries)), enumerable: true });
  }
  return object;
}

for (const [place, plot] of DATA.plots.entries()) {
  plot.place = place;
  lazily(plot, ["mean", "max", "min", "known"]);
  for (const area of plot.areas) lazily(area, ["value", "low", "high", "confidence"]);
}
for (const link of DATA.links) {
  if (link.together) lazily(link.together, ["max", "min"]);
}

/** In and out of a link as one plot, for a peak of their sum. */
function together(link, into, out) {
  const sum = (a, b) => a.map((value, at) => value + b[at]);
  const areas = new Map();
  for (const area of [...into.areas, ...out.areas]) {
    const other = areas.get(area.tenant);
    areas.set(area.tenant, other ? join(other, area) : area);
  }
  const { max, min } = link.together;
  const mean = sum(into.mean, out.mean);
  return {
    name: link.name, place: into.place, unit: into.unit, link: into.link, direction: "both", peak: link.peak,
    total: into.total + out.total, seconds: Math.max(into.seconds, out.seconds),
    mean,
    // A bucket that begins in the middle of a window contains only a part of it.
    max: max?.map((value, at) => Math.max(value, mean[at])),
    min: min?.map((value, at) => Math.min(value, mean[at])),
    known: into.known && out.known ? into.known.map((part, at) => Math.min(part, out.known[at]))
      : into.known ?? out.known,
    areas: [...areas.values()].map((area) => masked(area, mean)).sort((a, b) => a.tenant - b.tenant),
  };
}

/** An area without the time in which one of the directions is not known. */
function masked(area, mean) {
  const value = area.value.map((part, at) => (Number.isNaN(mean[at]) ? NaN : part));
  return { tenant: area.tenant, value, low: area.low, high: area.high, confidence: area.confidence };
}

/** The sum of two areas of one tenant. Their errors are those of the same programs, so the ends of the intervals are added. */
function join(a, b) {
  const value = a.value.map((first, at) => first + b.value[at]);
  const weighed = (name) => value.map((sum, at) => {
    const part = (area) => (area.value[at] > 0 ? area.value[at] * area[name][at] : 0);
    return sum > 0 ? (part(a) + part(b)) / sum : NaN;
  });
  return { tenant: a.tenant, value, low: weighed("low"), high: weighed("high"), confidence: weighed("confidence") };
}

/** The first bucket of a time span, and the one after the last. */
function buckets(from, to) {
  const at = (seconds) => (seconds - TIME.begin) / TIME.bucket;
  const first = Math.max(0, Math.floor(at(from) + 1e-6));
  return [first, Math.min(TIME.count, Math.max(first + 1, Math.ceil(at(to) - 1e-6)))];
}

/** Begin and end of a bucket. */
const beginOf = (bucket) => TIME.begin + bucket * TIME.bucket;
const endOf = (bucket) => Math.min(TIME.end, TIME.begin + (bucket + 1) * TIME.bucket);

/** For the visible buckets: the mean, the highest window, and the fraction of each area. */
function seen(plot) {
  const [first, last] = buckets(state.from, state.to);
  const means = plot.areas.map((area) => mean(area.value, first, last));
  const all = mean(plot.mean, first, last);
  let highest = NaN;
  for (let at = first; at < last; at++) {
    const value = (plot.max ?? plot.mean)[at];
    const top = Number.isFinite(value) ? value : plot.mean[at];
    if (!(highest >= top) && Number.isFinite(top)) highest = top;
  }
  const parts = plot.areas.map((area, at) => ({ tenant: area.tenant, mean: means[at], part: means[at] / all }));
  return { mean: all, highest, parts };
}

/** The mean over the known time. */
function mean(values, first, last) {
  let [sum, time] = [0, 0];
  for (let at = first; at < last; at++) {
    if (Number.isNaN(values[at])) continue;
    const length = endOf(at) - beginOf(at);
    sum += values[at] * length;
    time += length;
  }
  return time > 0 ? sum / time : NaN;
}
