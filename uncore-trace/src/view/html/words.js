// Formats numbers and times, and makes elements.

const DECIMAL = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]];
/** A no-break space between a figure and its unit. */
const SPACE = "\u00a0";

/** The divisor for `value`, and the name of the unit with its prefix. */
function scaleOf(value, unit) {
  const fits = ([size]) => Math.abs(value) >= size;
  const [size, prefix] = DECIMAL.find(fits) ?? [1, ""];
  if (unit === "bytes") return [size, prefix + "B"];
  if (unit === "ns") return TIMES.find(fits) ?? [1, "ns"];
  if (unit === "" || unit === "count") return [size, prefix];
  if (unit === "%") return [1, "%"];
  return [size, prefix === "" ? unit : prefix + " " + unit];
}

/** Three digits below 1000. */
function digits(value) {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return value.toFixed(1);
  if (size >= 0.01) return value.toFixed(2);
  return value > 0 ? "<0.01" : ">-0.01";
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** `12.3 GB`; a dash for an unknown value. */
function human(value, unit) {
  if (!known(value)) return "–";
  const [size, name] = scaleOf(value, unit);
  return `${digits(value / size)}${SPACE}${name}`.trim();
}

/** As `human`, per second. */
function rate(value, unit) {
  if (!known(value)) return "–";
  const text = human(value, unit);
  // `7.82 k/s`, but `677 /s`.
  return text + (text.includes(SPACE) ? "/s" : `${SPACE}/s`);
}

/** `52.4–62.0 GB`, or one number if both are printed alike. */
function range(low, high, unit) {
  if (!known(low) || !known(high)) return "–";
  const [size, name] = scaleOf(high, unit);
  const from = low / size < 0.01 && low < high * 0.01 ? "0" : digits(low / size);
  const to = digits(high / size);
  return `${from === to ? to : `${from}–${to}`}${SPACE}${name}`.trim();
}

function percent(part) {
  if (!known(part)) return "–";
  const value = part * 100;
  return `${value > 0 && value < 9.95 ? Math.max(value, 0.1).toFixed(1) : value.toFixed(0)}${SPACE}%`;
}

/** A length of time. */
function duration(seconds) {
  if (seconds < 180) return human(seconds * 1e9, "ns");
  if (seconds < 3 * 3600) return `${digits(seconds / 60)}${SPACE}min`;
  return seconds < 72 * 3600 ? `${digits(seconds / 3600)}${SPACE}h` : `${digits(seconds / 86400)}${SPACE}days`;
}

/** An element. Strings among the children become text, never markup. */
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const find = (id) => document.getElementById(id);
