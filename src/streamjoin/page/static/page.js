// Shows now.json once a second. All values become text nodes: nothing of a row is ever markup.
"use strict";

const EVERY = 1000;
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const at = (id) => document.getElementById(id);
let drawn = null; // the plan that the picture shows and its layout, as text
const narrow = matchMedia("(max-width: 700px)"); // as in page.css: the picture is drawn tall
let updated = 0; // when the figures came, by this machine's clock

function make(tag, className, ...content) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...content);
  return element;
}

const say = (id, text) => { if (at(id).textContent !== text) at(id).textContent = text; };
const rate = (value) => (value < 10 ? value.toFixed(value && value < 1 ? 2 : 0) : value < 1e5 ? whole.format(value) : compact.format(value));

function size(bytes) {
  for (const unit of ["bytes", "KB", "MB"]) {
    if (bytes < 1000) return `${bytes.toFixed(unit === "bytes" || bytes >= 100 ? 0 : 1)} ${unit}`;
    bytes /= 1000;
  }
  return `${bytes.toFixed(1)} GB`;
}

function duration(seconds) {
  const sign = seconds < 0 ? "-" : "";
  const length = Math.abs(seconds);
  if (length < 1e-3) return `${sign}${(length * 1e6).toPrecision(3)} µs`;
  if (length < 1) return `${sign}${(length * 1e3).toPrecision(3)} ms`;
  if (length < 120) return `${sign}${length.toPrecision(3)} s`;
  if (length < 7200) return `${sign}${whole.format(length / 60)} min`;
  if (length < 172800) return `${sign}${whole.format(length / 3600)} h`;
  return `${sign}${whole.format(length / 86400)} days`;
}

function showState(state) {
  at("state").dataset.state = state;
  say("state-text", state === "gone" ? "no answer" : state);
  document.body.classList.toggle("stale", state === "gone");
}

function showLine(name, lines) {
  const values = lines[name], times = lines.at;
  const most = Math.max(...values, 0);
  const [area, stroke] = at(`line-${name}`).children;
  if (values.length < 2 || !most) {
    area.removeAttribute("d");
    stroke.setAttribute("d", values.length ? "M0,62 L300,62" : "");
  } else {
    const first = times[0], length = times[times.length - 1] - first;
    const points = values.map((value, i) => `${((300 * (times[i] - first)) / length).toFixed(1)},${(62 - (57 * value) / most).toFixed(1)}`);
    stroke.setAttribute("d", `M${points.join(" L")}`);
    area.setAttribute("d", `M0,64 L${points.join(" L")} L300,64 Z`);
    say(`span-${name}`, `last ${duration(length)}`);
  }
  say(`peak-${name}`, most ? `peak ${rate(most)}` : "");
}

function showTiles(figures) {
  const further = figures.further;
  const late = Object.values(figures.sides).reduce((sum, side) => sum + side.late, 0);
  const tiles = [
    ["Matches", whole.format(figures.matches), "matches"],
    ["State", size(figures.state_bytes), "state-bytes"],
    ["Late rows", whole.format(late), "late"],
  ];
  if ("buffered" in further) tiles.push(["Results to poll", whole.format(further.buffered), "buffered"]);
  if ("batches" in further) tiles.push(["Micro-batches", whole.format(further.batches), "batches"]);
  if ("behind" in further) tiles.push(["Unread rows", whole.format(further.behind), "behind"]);
  if (further.malformed) tiles.push(["Malformed rows", whole.format(further.malformed), "malformed"]);
  at("tiles").replaceChildren(...tiles.map(([title, text, id]) => {
    const value = make("p", "", text);
    value.id = id;
    return make("article", "card tile", make("h2", "", title), value);
  }));
}

function showSides(sides) {
  at("sides").replaceChildren(...Object.entries(sides).map(([name, side]) => {
    const card = make("article", "card side", make("h2", "", name === "both" ? "both sides" : name));
    card.dataset.side = name;
    const facts = [
      ["rows", whole.format(side.rows)],
      ["held", whole.format(side.held)],
      ["late", whole.format(side.late)],
      ["watermark", side.watermark || "none yet"],
    ];
    if (side.lag_seconds !== null) facts.push(["newest row", `${duration(side.lag_seconds)} ago`]);
    const list = make("dl", "");
    for (const [title, text] of facts) {
      const value = make("dd", "", text);
      value.dataset.figure = title;
      list.append(make("dt", "", title), value);
    }
    card.append(list);
    return card;
  }));
}

function bar(name, share, text) {
  const filled = make("b", "");
  filled.style.width = `${(100 * share).toFixed(1)}%`;
  return make("div", "bar", make("span", "", name), make("i", "", filled), make("span", "", text));
}

function showWorkers(figures, loads, rates) {
  at("workers").replaceChildren(...figures.workers.map((worker) => {
    const seconds = Object.values(worker.seconds).reduce((sum, each) => sum + each, 0);
    const text = seconds ? `${duration(seconds)} busy` : compact.format(worker.comparisons);
    return bar(worker.name, loads[worker.name] || 0, text);
  }));
  const compared = figures.workers.reduce((sum, worker) => sum + worker.comparisons, 0);
  say("workers-note", `${whole.format(compared)} comparisons, ${rate(rates.comparisons)} per second. Bars: the share of the busiest worker, of late.`);
}

function showDurations(durations) {
  const of = durations.of === "results" ? "Latency of results" : "Length of micro-batches";
  say("durations-title", of);
  const found = Object.entries(durations.quantiles);
  const most = Math.max(...found.map(([, seconds]) => seconds), 1e-9);
  at("durations").replaceChildren(...found.map(([name, seconds]) => bar(name, seconds / most, duration(seconds))));
  say("durations-note", found.length
    ? (durations.of === "results" ? "From the push that completed a result to its being ready; share of results." : "Share of the micro-batches that took at most so long.")
    : "nothing measured yet");
}

function showRows(columns, rows) {
  at("columns").replaceChildren(...columns.map((name) => make("th", "", name)));
  at("rows").replaceChildren(...[...rows].reverse().map((row) =>
    make("tr", "", ...row.map((value) => make("td", value === null ? "null" : "", value === null ? "NULL" : value)))));
  say("rows-note", rows.length ? `the last ${rows.length}, the newest first` : "none yet");
}

async function showPlan(plan) {
  const tall = narrow.matches;
  const text = JSON.stringify([plan, tall]);
  if (!plan || text === drawn) return;
  const answer = await fetch(tall ? "plan-tall.svg" : "plan.svg", { cache: "no-store" });
  const picture = new DOMParser().parseFromString(await answer.text(), "image/svg+xml").documentElement;
  at("picture").replaceChildren(document.importNode(picture, true));
  drawn = text;
  say("on", plan.on);
  const reasons = [...Object.entries(plan.reasons).map(([what, why]) => [what === "settling" ? "tuples" : what, why]), ...Object.entries(plan.windows).map(([side, window]) => [`${side} window`, window.why]), ["nodes", plan.nodes.why]];
  at("reasons").replaceChildren(...reasons.filter(([, why]) => why).flatMap(([what, why]) => [make("dt", "", what), make("dd", "", why)]));
}

async function show() {
  const answer = await fetch("now.json", { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.statusText);
  const { name, engine, plan, figures, rates, loads, lines } = await answer.json();
  say("name", name);
  document.title = `${name} · streamjoin`;
  say("kind", plan ? `${plan.how} join, ${engine === "spark" ? "on Spark" : `embedded, ${plan.topology}`}, ${plan.workers} worker${plan.workers === 1 ? "" : "s"}` : engine);
  await showPlan(plan);
  showState(figures.state);
  say("rate-rows", rate(rates.rows));
  say("rate-matches", rate(rates.matches));
  showLine("rows", lines);
  showLine("matches", lines);
  showTiles(figures);
  showSides(figures.sides);
  showWorkers(figures, loads, rates);
  showDurations(figures.durations);
  showRows(figures.columns, figures.rows);
  updated = Date.now();
}

async function repeat() {
  if (!document.hidden) {
    try { await show(); } catch { showState("gone"); }
    say("age", updated ? `figures of ${new Date(updated).toLocaleTimeString("en-GB")}` : "");
  }
  setTimeout(repeat, EVERY);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) show().catch(() => showState("gone")); });
repeat();
