"use strict";
// The page is whole without this: here are switches, and values under the pointer.
const LEFT = 62, RIGHT = 408, TOP = 26, BOTTOM = 222;
const tip = document.body.appendChild(Object.assign(document.createElement("div"), { id: "tip", hidden: true }));

function pressable(element, pressed, act) {
  element.setAttribute("role", "button");
  element.tabIndex = 0;
  const show = () => element.setAttribute("aria-pressed", String(pressed));
  const press = () => { pressed = !pressed; show(); act(pressed); };
  element.addEventListener("click", press);
  element.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); press(); }
  });
  show();
}

function number(value) {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 1 ? 2 : 3;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

function placed(svg, scale, x) {
  const [first, last] = svg.dataset[scale].split(",").map(Number);
  const share = scale === "log" ? Math.log(Math.max(x, first) / first) / (Math.log(last / first) || 1)
    : (x - first) / (last - first || 1);
  return LEFT + (RIGHT - LEFT) * Math.max(0, share);
}

function readOff(figure, svg, series, event) {
  const box = svg.getBoundingClientRect(), pointer = (event.clientX - box.left) * 420 / box.width;
  const scale = figure.dataset.scale, lines = [];
  let at = null;
  for (const one of series) {
    if (figure.querySelector(`li[aria-pressed=false][data-name="${CSS.escape(one.name)}"]`)) continue;
    const distances = one.x.map(x => Math.abs(placed(svg, scale, x) - pointer));
    const near = distances.indexOf(Math.min(...distances));
    if (one.y[near] === null || distances[near] > 40) continue;
    if (at === null || distances[near] < at.distance) at = { distance: distances[near], x: one.x[near] };
    const range = one.low.length ? ` (${number(one.low[near])} to ${number(one.high[near])})` : "";
    lines.push(`${one.name}, ${number(one.x[near])}: ${number(one.y[near])}${range}`);
  }
  if (at === null) return quiet(svg);
  let guide = svg.querySelector(".guide");
  if (!guide) {
    guide = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "path"));
    guide.setAttribute("class", "guide");
  }
  guide.setAttribute("d", `M${placed(svg, scale, at.x)} ${TOP}V${BOTTOM}`);
  tip.replaceChildren(...lines.map(line => Object.assign(document.createElement("div"), { textContent: line })));
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4))}px`;
}

function quiet(svg) {
  tip.hidden = true;
  svg.querySelector(".guide")?.remove();
}

for (const figure of document.querySelectorAll("figure.chart")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  for (const item of figure.querySelectorAll(".legend li"))
    pressable(item, true, on => figure.querySelectorAll(`.series[data-name="${CSS.escape(item.dataset.name)}"]`)
      .forEach(series => series.classList.toggle("off", !on)));
  const log = Object.assign(document.createElement("button"), { textContent: "log axis", className: "log-axis" });
  pressable(log, figure.dataset.scale === "log", on => { figure.dataset.scale = on ? "log" : "linear"; });
  figure.querySelector(".panels").before(log);
  const confirmatory = [...figure.querySelectorAll(".legend li.confirmatory")];
  if (confirmatory.length) {
    const all = Object.assign(document.createElement("button"), { textContent: "confirmatory seeds", className: "confirm" });
    pressable(all, true, on => confirmatory.filter(item => item.getAttribute("aria-pressed") !== String(on))
      .forEach(item => item.click()));
    log.after(" ", all);
  }
  figure.querySelectorAll("svg.panel").forEach((svg, i) => {
    if (!svg.dataset.log) return;
    for (const kind of ["pointermove", "pointerdown"])
      svg.addEventListener(kind, event => readOff(figure, svg, data[i], event));
    svg.addEventListener("pointerleave", () => quiet(svg));
  });
}

const claims = document.querySelector("#claims tbody");
if (claims) {
  const bar = document.createElement("p");
  for (const kind of ["holds", "differs", "open"]) {
    const rows = [...claims.querySelectorAll(`tr.${kind}`)];
    const words = kind === "open" ? "not tested" : kind;
    const button = Object.assign(document.createElement("button"), { textContent: `${words}: ${rows.length}` });
    pressable(button, true, on => rows.forEach(row => row.classList.toggle("off", !on)));
    bar.append(button, " ");
  }
  claims.closest("section").querySelector("table").before(bar);
}
