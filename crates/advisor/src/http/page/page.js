// The list of paths, its live updates, and the history of one path. Text from the service only ever becomes
// text of the page (textContent), never markup.
"use strict";

const PART = 100;
const MOST_ANOMALIES = 50;
const PLOTS = [
  ["rtt", "Round trip", seconds],
  ["bandwidth", "Bandwidth to the client", rate],
  ["reverse_bandwidth", "Bandwidth from the client", rate],
  ["goodput", "Goodput of transfers to the client", rate],
  ["reverse_goodput", "Goodput of transfers from the client", rate],
  ["loss", "Loss", percent],
];
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
const body = document.querySelector("#paths tbody");
const rows = new Map();
let offset = 0;
let total = 0;
let shown = null;
let asked = 0;

function element(name, text, properties) {
  const made = Object.assign(document.createElement(name), properties);
  if (text !== undefined) made.textContent = text;
  return made;
}

function scaled(value, unit, steps) {
  let step = 0;
  while (value >= 1000 && step < steps.length - 1) {
    value /= 1000;
    step += 1;
  }
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${steps[step]}${unit}`;
}

function known(value, show) {
  return value === undefined || value === null ? "–" : show(value);
}

function rate(value) {
  return scaled(value, "bit/s", ["", "k", "M", "G", "T"]);
}

function bytes(value) {
  return scaled(value, "B", ["", "k", "M", "G", "T"]);
}

function percent(value) {
  return `${(value * 100).toPrecision(3)} %`;
}

function seconds(value) {
  return value < 1 ? `${(value * 1000).toPrecision(3)} ms` : `${value.toPrecision(3)} s`;
}

function age(value) {
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  if (value < 129600) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} d`;
}

function advised(advice) {
  if (advice.bdp_bytes === undefined && advice.streams === undefined) return "–";
  const parts = [];
  parts.push(advice.set_buffer_bytes === undefined ? "kernel's buffer" : `buffer ${bytes(advice.set_buffer_bytes)}`);
  if (advice.streams !== undefined) parts.push(advice.streams === 1 ? "1 stream" : `${advice.streams} streams`);
  if (advice.congestion_control !== undefined) parts.push(advice.congestion_control);
  if (advice.pace_bps !== undefined) parts.push(`pace ${rate(advice.pace_bps)}`);
  return parts.join(", ");
}

// The rate to the client, and the one from it where both are known and differ by a tenth.
function bothWays(advice) {
  const [down, up] = [advice.download_bps, advice.upload_bps];
  if (down === undefined || up === undefined) return known(advice.bandwidth_bps, rate);
  return Math.max(down, up) < 1.1 * Math.min(down, up) ? rate(down) : `${rate(down)} ↓ ${rate(up)} ↑`;
}

function cell(name, text) {
  const made = element("td");
  made.dataset.name = name;
  if (text !== undefined) made.append(element("span", text));
  return made;
}

function fill(row, path) {
  const advice = path.advice;
  const client = cell("Client");
  const part = element("span");
  const open = element("button", path.client, { type: "button" });
  open.addEventListener("click", () => showDetail(path.client));
  part.append(open);
  if (path.transfers > 0) {
    const text = path.transfers === 1 ? "1 transfer runs" : `${path.transfers} transfers run`;
    part.append(element("span", text, { className: "transfers" }));
  }
  client.append(part);
  row.replaceChildren(
    client,
    cell("RTT", known(advice.rtt_seconds, seconds)),
    cell("Bandwidth", bothWays(advice)),
    cell("Expected", known(advice.expected_bps, rate)),
    cell("Advice", advised(advice)),
    cell("Confidence", percent(advice.confidence)),
    cell("Age", known(advice.age_seconds, age)),
  );
  row.title = advice.why;
}

function count() {
  const last = Math.min(offset + rows.size, total);
  byId("count").textContent = total === 0 ? "no path" : `${offset + 1}–${last} of ${total}`;
  const search = byId("search").value.trim();
  byId("paths").hidden = total === 0;
  byId("empty").hidden = total > 0;
  byId("empty").textContent = search !== ""
    ? `No client has “${search}” in its address. Names are not searched; clear the field to see all clients.`
    : "No client is known yet. One appears here when it asks (longhaul advisor get HOST, on the client), when a log of the "
      + "settings has a transfer of it, or when you add it: longhaul advisor add CLIENT --token-file FILE.";
  byId("previous").disabled = offset === 0;
  byId("next").disabled = offset + PART >= total;
}

async function json(address) {
  let response;
  try {
    response = await fetch(address, { credentials: "omit" });
  } catch {
    throw new Error(`nothing answers at ${location.host}; is longhaul advisor running there?`);
  }
  if (response.ok) return response.json();
  const told = await response.json().catch(() => ({}));
  throw new Error(told.error ?? `${response.status} ${response.statusText}`);
}

// A degraded service answers with status 503 and the reasons.
async function health() {
  try {
    const response = await fetch("health", { credentials: "omit" });
    const told = await response.json();
    byId("server").textContent = `${told.version} on ${told.server}`;
    document.title = `${shown === null ? "" : `${shown} – `}${told.server} – longhaul advisor`;
    byId("troubles").replaceChildren(...told.reasons.map((reason) => element("li", reason)));
    byId("troubles").hidden = told.reasons.length === 0;
  } catch {
    // The state of the page says that nothing answers.
  }
}

async function load() {
  asked += 1;
  const number = asked;
  const query = new URLSearchParams({ search: byId("search").value, offset, limit: PART });
  try {
    const list = await json(`api/v1/paths?${query}`);
    // A later question was asked meanwhile.
    if (number !== asked) return;
    total = list.total;
    rows.clear();
    for (const path of list.paths) {
      const row = element("tr");
      fill(row, path);
      rows.set(path.client, row);
    }
    body.replaceChildren(...rows.values());
    count();
  } catch (error) {
    byId("state").textContent = `the list cannot be read: ${error.message}`;
    if (rows.size === 0) {
      byId("empty").hidden = false;
      byId("empty").textContent = "The list is read again every minute, and as soon as the service answers.";
    }
  }
}

function update(path) {
  const row = rows.get(path.client);
  if (row !== undefined) {
    fill(row, path);
    row.classList.add("changed");
    setTimeout(() => row.classList.remove("changed"), 1500);
  } else if (path.client.includes(byId("search").value.trim().toLowerCase()) && rows.size < PART) {
    later(load);
  }
  if (path.client === shown) later(plotAll);
}

const waiting = new Set();
// Many changes cause one reading.
function later(task) {
  if (waiting.has(task)) return;
  waiting.add(task);
  setTimeout(() => {
    waiting.delete(task);
    task();
  }, 500);
}

function tell(anomaly) {
  const text = `${when(Date.parse(anomaly.at))}: ${anomaly.quantity} of the path to ${anomaly.client} has changed (${anomaly.test})`;
  const list = byId("anomalies");
  list.prepend(element("li", text));
  while (list.children.length > MOST_ANOMALIES) list.lastElementChild.remove();
}

function listen() {
  const events = new EventSource("api/v1/events");
  const state = byId("state");
  const on = (name, take) => events.addEventListener(name, (event) => take(JSON.parse(event.data)));
  let opened = false;
  events.addEventListener("open", () => {
    state.textContent = "live";
    // Changes may have been missed while the connection was away.
    if (opened) load();
    opened = true;
    health();
  });
  events.addEventListener("error", () => {
    state.textContent = `not connected: nothing answers at ${location.host}; the numbers are old. Is longhaul advisor `
      + "running there? This page tries again every few seconds";
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  });
  on("path", update);
  on("anomaly", tell);
  on("forgotten", () => later(load));
  on("reload", () => later(load));
}

// The address of this page names the path that is shown: #CLIENT or #CLIENT?since=24h.
function named() {
  let text = "";
  try {
    text = decodeURIComponent(location.hash.slice(1));
  } catch {
    // Not an address that this page made: no path is shown.
  }
  const [client, query] = text.split("?");
  const since = new URLSearchParams(query).get("since");
  if ([...byId("since").options].some((option) => option.value === since)) byId("since").value = since;
  if (client === "") hideDetail();
  else if (client === shown) plotAll();
  else openDetail(client);
}

function showDetail(client) {
  const address = `#${encodeURIComponent(client)}?since=${byId("since").value}`;
  if (location.hash === address) named();
  else location.hash = address;
}

function hideDetail() {
  shown = null;
  byId("detail").hidden = true;
  health();
}

async function openDetail(client) {
  shown = client;
  health();
  byId("detail").hidden = false;
  byId("detail-client").textContent = client;
  byId("detail-why").textContent = "";
  byId("plots").replaceChildren();
  await plotAll();
  byId("detail").scrollIntoView({ block: "nearest" });
}

async function plotAll() {
  const client = shown;
  if (client === null) return;
  const address = `api/v1/paths/${encodeURIComponent(client)}`;
  try {
    const path = await json(address);
    const plots = [];
    for (const [quantity, title, show] of PLOTS) {
      const query = new URLSearchParams({ quantity, since: byId("since").value });
      const history = await json(`${address}/history?${query}`);
      if (history.points.length > 0) plots.push(plot(title, history.points, show));
    }
    if (client !== shown) return;
    byId("detail-why").textContent = path.advice.why;
    if (plots.length === 0) plots.push(element("p", "There is no history in this time."));
    byId("plots").replaceChildren(...plots);
  } catch (error) {
    byId("detail-why").textContent = `the path cannot be read: ${error.message}`;
  }
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// From 0 in steps of 1, 2 or 5 times a power of ten, to the first that is not below the largest value.
function roundTicks(largest) {
  const rough = largest / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const ticks = [0];
  while (ticks[ticks.length - 1] < largest * 0.999) ticks.push(Number((ticks.length * step).toPrecision(12)));
  return ticks;
}

const MINUTE = 60000;
const TIME_STEPS = [1, 2, 5, 10, 30, 60, 180, 360, 720, 1440, 2880, 10080, 43200, 131400].map((minutes) => minutes * MINUTE);

// Full minutes, hours or days of the local clock, at most four; the only time, if the span is shorter than a minute.
function roundTimes(first, last) {
  const step = TIME_STEPS.find((one) => (last - first) / one <= 4) ?? (last - first) / 4;
  const shift = new Date(first).getTimezoneOffset() * MINUTE;
  const times = [];
  for (let time = Math.ceil((first - shift) / step) * step + shift; time <= last; time += step) times.push(time);
  return times.length > 0 ? times : [first];
}

function shortTime(time, span) {
  const format = span > 3 * 1440 * MINUTE ? { dateStyle: "short" }
    : span > 1440 * MINUTE ? { weekday: "short", hour: "2-digit", minute: "2-digit" } : { timeStyle: "short" };
  return new Date(time).toLocaleString(undefined, format);
}

// With the zone, because readers of one address may sit in several.
function when(time) {
  const format = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
  return new Date(time).toLocaleString(undefined, format);
}

function plot(title, points, show) {
  const [width, height, left, bottom] = [400, 160, 70, 22];
  const times = points.map((point) => Date.parse(point.at));
  const values = points.map((point) => point.value);
  const [first, last] = [times[0], times[times.length - 1]];
  const ticks = roundTicks(Math.max(...values) || 1);
  const top = ticks[ticks.length - 1];
  const x = (time) => left + ((time - first) / (last - first || 1)) * (width - left - 8);
  const y = (value) => height - bottom - (value / top) * (height - bottom - 8);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const tick of ticks) {
    const at = y(tick);
    svg.append(drawn("line", { class: "axis", x1: left, x2: width, y1: at, y2: at }));
    svg.append(drawn("text", { class: "tick", x: left - 6, y: at + 4, "text-anchor": "end" }, show(tick)));
  }
  for (const time of roundTimes(first, last)) {
    const at = x(time);
    svg.append(drawn("line", { class: "axis", x1: at, x2: at, y1: height - bottom, y2: height - bottom + 4 }));
    const anchor = at > width - 40 ? "end" : at < left + 10 ? "start" : "middle";
    svg.append(drawn("text", { class: "time", x: at, y: height - 4, "text-anchor": anchor }, shortTime(time, last - first)));
  }
  const steps = points.map((_, place) => `${place === 0 ? "M" : "L"}${x(times[place]).toFixed(1)} ${y(values[place]).toFixed(1)}`);
  svg.append(drawn("path", { class: "line", d: steps.join("") }));
  points.forEach((point, place) => {
    const dot = drawn("circle", { class: "dot", r: 2, cx: x(times[place]).toFixed(1), cy: y(values[place]).toFixed(1) });
    dot.append(drawn("title", {}, `${show(point.value)}, ${when(times[place])}, ${point.test}`));
    svg.append(dot);
  });
  const figure = element("figure");
  figure.append(element("figcaption", `${title}: ${show(values[values.length - 1])}`), svg);
  return figure;
}

byId("find").addEventListener("submit", (event) => event.preventDefault());
byId("search").addEventListener("input", () => {
  offset = 0;
  load();
});
byId("previous").addEventListener("click", () => {
  offset = Math.max(0, offset - PART);
  load();
});
byId("next").addEventListener("click", () => {
  offset += PART;
  load();
});
byId("since").addEventListener("change", () => showDetail(shown));
byId("close").addEventListener("click", () => {
  location.hash = "";
});
window.addEventListener("hashchange", named);
setInterval(() => {
  later(load);
  health();
}, 60000);
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
byId("zone").textContent = `Times are those of this browser's time zone, ${zone}. The service keeps them in UTC.`;
load();
listen();
named();
