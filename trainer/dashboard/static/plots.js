// What all plots share: colours from the style sheet, axes, and no plot where there is nothing.
"use strict";
const patchgymPlots = (() => {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const faded = (name, part) => colour(name).replace(/^rgba?\(([^)]*?)\)$/, `rgba($1, ${part})`);
  const has = (trace) => (trace.y || []).some((value) => value !== null && value !== undefined);

  const layout = (own) => {
    const axis = { gridcolor: colour("line"), zerolinecolor: colour("line-strong"), tickfont: { size: 11 }, automargin: true, nticks: 6, exponentformat: "power" };
    return {
      autosize: true, margin: { l: 8, r: 8, t: 6, b: 4 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 11, color: colour("ink-soft") },
      showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, xanchor: "left", font: { size: 11 } },
      hovermode: "x unified", hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line-strong"), font: { size: 11, color: colour("ink") } },
      xaxis: { ...axis, ...own.xaxis }, yaxis: { ...axis, ...own.yaxis },
      ...(own.yaxis2 ? { yaxis2: { ...axis, overlaying: "y", side: "right", showgrid: false, tickmode: "auto", nticks: 4, ...own.yaxis2 } } : {}),
      uirevision: "kept",
    };
  };

  // Draws plots, each [box, traces, layout, words], below their captions; those with nothing to draw
  // are hidden. All boxes get their places before any is drawn: a plot takes the width it finds.
  const draw = (plots) => {
    const usable = plots.map(([box, traces, ...rest]) => [box, traces.filter(has), ...rest]);
    for (const [box, traces] of usable) box.closest("figure").hidden = !traces.length;
    for (const [box, traces, own, words] of usable) {
      if (!traces.length) continue;
      Plotly.react(box, traces, layout(own), { displayModeBar: false, responsive: true });
      box.setAttribute("role", "img");
      box.setAttribute("aria-label", `${box.previousElementSibling.textContent}: ${words}`);
    }
  };

  // Columns of thousands of steps become means of some hundred stretches: one can't see more.
  const MOST = 400;
  const stretch = (length) => (length > 1.5 * MOST ? Math.ceil(length / MOST) : 1);
  const mean = (values) => {
    const known = values.filter((value) => value !== null && value !== undefined);
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
  };
  const thin = (columns, size) => {
    if (size === 1) return columns;
    const parts = (values) => Array.from({ length: Math.ceil(values.length / size) }, (_, k) => mean(values.slice(k * size, (k + 1) * size)));
    return Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, parts(values)]));
  };

  return { colour, faded, draw, stretch, thin };
})();
