// Times of the recording, and elements that stand for a tenant.

/** Seconds after the begin: `1.250 s`, or `2:05:01` in a long recording. */
function clock(seconds, step = 0.001) {
  const places = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  if (TIME.end < 180) return `${seconds.toFixed(places)}${SPACE}s`;
  const whole = Number(Math.abs(seconds).toFixed(places));
  const [h, m] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const s = (whole % 60).toFixed(places).padStart(places > 0 ? places + 3 : 2, "0");
  return `${seconds < 0 ? "-" : ""}${h}:${String(m).padStart(2, "0")}:${s}`;
}

/** The wall clock, UTC; empty if the recording does not have it. */
function wall(seconds, places = 3) {
  if (!known(DATA.wall_ms)) return "";
  const text = new Date(DATA.wall_ms + seconds * 1000).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, places > 0 ? 20 + places : 19)} UTC`;
}

/** A square in the colour of a tenant. */
function swatch(tenant) {
  const canvas = make("canvas", { className: "swatch", width: 24, height: 24 });
  canvas.dataset.tenant = tenant;
  canvas.setAttribute("aria-hidden", "true");
  paintSwatch(canvas);
  return canvas;
}

/** The name of a tenant; a click shows that tenant alone. */
function tenantButton(tenant, ...words) {
  const button = make("button", { type: "button", className: "tenant", title: TENANTS[tenant].name },
    swatch(tenant), make("span", { className: "name" }, words[0] ?? TENANTS[tenant].name), ...words.slice(1));
  button.dataset.tenant = tenant;
  button.setAttribute("aria-pressed", String(state.tenant === tenant));
  return button;
}
