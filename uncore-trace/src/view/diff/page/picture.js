// Draws two rates.

const DATA = JSON.parse(find("data").textContent);

/** Width and height of a picture, and the positions of its two points. */
const [WIDTH, HEIGHT, BEFORE, AFTER, EDGE] = [220, 26, 8, 18, 6];

/** An SVG element. */
function draw(tag, attributes, ...children) {
  const element = document.createElementNS(find("drawing").namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** The upper end of the scale for these changes. */
function scaleOfChanges(changes, peak) {
  const ends = changes.flatMap(({ before, after }) => [before.rate, before.high, after.rate, after.high]).filter(known);
  const most = Math.max(...ends, 0);
  // A peak far above the rates would make them too small.
  return known(peak) && peak < most * 2 ? Math.max(most, peak) : most;
}

/** Both rates of a change, from 0 to `most`. */
function picture({ before, after }, most, peak, unit) {
  const x = (value) => (EDGE + (most > 0 ? value / most : 0) * (WIDTH - 2 * EDGE)).toFixed(1);
  const words = `before ${rate(before.rate, unit)}, after ${rate(after.rate, unit)}`;
  const parts = [draw("line", { class: "axis", x1: x(0), x2: x(0), y1: 0, y2: HEIGHT })];
  if (known(peak) && peak <= most) parts.push(draw("line", { class: "peak", x1: x(peak), x2: x(peak), y1: 0, y2: HEIGHT }));
  if (known(before.rate) && known(after.rate)) {
    parts.push(draw("line", { class: "from", x1: x(before.rate), y1: BEFORE, x2: x(after.rate), y2: AFTER }));
  }
  for (const [{ rate: value, low, high }, y, word] of [[before, BEFORE, "before"], [after, AFTER, "after"]]) {
    if (!known(value)) continue;
    if (known(low) && known(high)) parts.push(draw("line", { class: `reach ${word}`, x1: x(low), x2: x(high), y1: y, y2: y }));
    parts.push(draw("circle", { class: `point ${word}`, cx: x(value), cy: y, r: 4 }));
  }
  return draw("svg", { class: "rates", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words }, ...parts);
}

/** The CSS class of a change, which sets its colour. */
function kindOf({ beyond, difference }) {
  if (beyond !== true) return "same";
  return difference > 0 ? "more" : "less";
}
