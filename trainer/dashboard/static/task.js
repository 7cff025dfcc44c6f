// The plot of one task: what its groups came to, in their order.
"use strict";
(() => {
  const place = document.querySelector("[data-history]");
  const box = place.querySelector(".chart");
  const { colour, draw } = patchgymPlots;
  let known = { number: [], rate: [], reward: [] };
  const again = () => draw([[box, [
    { type: "scatter", mode: "lines+markers", name: "pass rate", x: known.number, y: known.rate, marker: { size: 5 }, line: { width: 1.4, color: colour("c1") } },
    { type: "scatter", mode: "lines", name: "mean reward", x: known.number, y: known.reward, line: { width: 1.2, dash: "dot", color: colour("c3") } },
  ], { yaxis: { rangemode: "tozero" } }, `${known.number.length} groups; the numbers are in the table below`]]);
  document.addEventListener("theme", again);
  fetch(place.dataset.history).then((answer) => answer.json()).then((found) => { known = found; again(); });
})();
