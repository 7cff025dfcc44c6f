// The plots of several runs over each other.
"use strict";
(() => {
  const place = document.querySelector("[data-compare]");
  const { colour, draw, stretch, thin } = patchgymPlots;
  let runs = [];

  const withMinutes = (columns) => {
    let total = 0;
    const known = (columns.seconds || []).some((value) => value);
    return { ...columns, minutes: known ? columns.seconds.map((value) => (total += value || 0) / 60) : [] };
  };
  const again = () => {
    draw([...place.querySelectorAll("[data-curve]")].map((box) => {
      const over = box.dataset.over || "step";
      const traces = runs.map(({ name, columns }, k) => ({
        type: "scatter", mode: columns.step.length < 3 ? "lines+markers" : "lines", name,
        x: columns[over], y: columns[over].length ? columns[box.dataset.curve] : [],
        line: { width: 1.5, color: colour(`c${k + 1}`) },
      }));
      return [box, traces, { yaxis: box.dataset.curve === "idle" ? { tickformat: ".0%", rangemode: "tozero" } : {} }, `${runs.length} runs`];
    }));
  };
  document.addEventListener("theme", again);
  fetch(place.dataset.compare).then((answer) => answer.json()).then((found) => {
    runs = found.map(({ name, columns }) => ({ name, columns: thin(withMinutes(columns), stretch((columns.step || []).length)) }));
    again();
  });
})();
