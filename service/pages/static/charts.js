// Lines over time or by concurrency. Their figures stand in tables as well, so that nothing is lost without this.
"use strict";

const drawn = new Map();
// Whole seconds at the least, so that no two ticks of a short run read alike.
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200];

function colours() {
  const style = getComputedStyle(document.documentElement);
  // A canvas does not know light-dark(), so an element is asked what it comes to.
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = {};
  for (const name of ["ink", "muted", "line", "run", "base"]) {
    probe.className = `probe-${name}`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  found.font = `11px ${style.fontFamily}`;
  return found;
}

function options(series, width) {
  const paint = colours();
  const axis = { stroke: paint.muted, font: paint.font, grid: { stroke: paint.line, width: 1 }, ticks: { stroke: paint.line, width: 1 } };
  const two = (number) => String(number).padStart(2, "0");
  const clock = (all, at) => {
    const moment = new Date(at * 1000);
    const minutes = `${two(moment.getHours())}:${two(moment.getMinutes())}`;
    return all.at(-1) - all[0] < 600 ? `${minutes}:${two(moment.getSeconds())}` : minutes;
  };
  const level = series.time ? { space: 70, incrs: STEPS_S, values: (_, all) => all.map((at) => clock(all, at)) } : { splits: () => series.x, values: (_, all) => all.map((one) => `c=${one}`) };
  return {
    width,
    height: 170,
    legend: { show: series.lines.length > 1 },
    cursor: { y: false },
    scales: { x: { time: series.time, ...(series.time ? {} : { distr: 3, log: 2 }) }, y: { range: (_, low, high) => [0, (high || 1) * 1.08] } },
    axes: [{ ...axis, ...level }, { ...axis, size: 52 }],
    series: [
      { value: series.time ? "{HH}:{mm}:{ss}" : undefined },
      ...series.lines.map((line) => {
        const base = line.name.startsWith("baseline");
        return {
          label: line.name, stroke: base ? paint.base : paint.run, width: base ? 1.5 : 2, dash: base ? [5, 4] : undefined,
          points: { show: !series.time || line.y.length < 30, size: 5 }, spanGaps: true,
        };
      }),
    ],
  };
}

function draw(plot) {
  const text = plot.dataset.series;
  const known = drawn.get(plot.id);
  const series = JSON.parse(text);
  const data = [series.x, ...series.lines.map((line) => line.y)];
  if (known?.plot === plot && known.width === plot.clientWidth) {
    if (known.text !== text) known.chart.setData(data);
    known.text = text;
    return;
  }
  known?.chart.destroy();
  plot.textContent = "";
  drawn.set(plot.id, { plot, text, width: plot.clientWidth, chart: new uPlot(options(series, plot.clientWidth), data, plot) });
}

function drawAll() {
  for (const plot of document.querySelectorAll("[data-series]")) draw(plot);
}

document.addEventListener("htmx:after:swap", drawAll);
document.addEventListener("theme", () => {
  for (const known of drawn.values()) known.width = -1;
  drawAll();
});
window.addEventListener("resize", drawAll);
drawAll();
