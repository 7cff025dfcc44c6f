// The plots of one run: its steps as lines, drawn by plotly and added to as they come.
"use strict";
(() => {
  const place = document.querySelector("[data-series]");
  if (!place) return;
  let all = {}; // by name, an entry a step; `columns` and `waits` are what is drawn of it
  let allWaits = {};
  let columns = {};
  let waits = {};
  let heldout = [];
  let origin = 0;

  const { colour, faded } = patchgymPlots;

  const line = (name, title, shade, more = {}) => ({
    type: "scatter", mode: (columns.step || []).length < 3 ? "lines+markers" : "lines", name: title,
    x: columns.step, y: columns[name], line: { width: 1.6, color: colour(shade) }, connectgaps: false, ...more,
  });
  const perSecond = (name) => columns[name].map((value, k) => {
    const seconds = columns.seconds[k];
    return value === null || !seconds ? null : value / seconds;
  });

  const REASONS = ["c2", "c4", "c5", "c7", "c3", "c6", "c8"];
  // The reasons that took most, and what all others took together.
  const longest = (most) => {
    const sum = (values) => values.reduce((total, value) => total + (value || 0), 0);
    const ordered = Object.entries(waits).map((each) => [...each, sum(each[1])]).sort((a, b) => b[2] - a[2]);
    const least = 0.005 * ordered.reduce((total, each) => total + each[2], 0);
    const shown = ordered.filter((each, k) => k < most && each[2] > least);
    const others = ordered.slice(shown.length);
    if (!others.some((each) => each[2] > 0)) return shown;
    return [...shown, ["others", others[0][1].map((_, step) => sum(others.map((each) => each[1][step])))]];
  };

  const charts = {
    reward: () => ({
      traces: [
        line("reward", "reward", "c1"), line("pass_rate", "pass rate", "c3", { line: { width: 1.3, dash: "dot", color: colour("c3") } }),
        {
          type: "scatter", mode: "markers", name: "held out", x: heldout.map((m) => m.step), y: heldout.map((m) => m.rate),
          text: heldout.map((m) => m.name), hovertemplate: "%{text} %{y:.1%}",
          marker: { size: 8, symbol: "diamond", color: colour("ink") },
          error_y: { type: "data", symmetric: false, array: heldout.map((m) => m.high - m.rate), arrayminus: heldout.map((m) => m.rate - m.low), thickness: 1.2, width: 4, color: colour("ink") },
        },
      ],
      layout: { yaxis: { rangemode: "tozero" } },
    }),
    waits: () => ({
      traces: longest(6).map(([name, values], k) => ({
        type: "scatter", mode: "lines", stackgroup: "one", name, x: columns.step, hovertemplate: "%{y:.1%}",
        y: values.map((value, step) => (columns.seconds[step] ? value / columns.seconds[step] : null)),
        line: { width: 0.6, color: colour(REASONS[k]) }, fillcolor: faded(REASONS[k], 0.55),
      })),
      layout: { yaxis: { tickformat: ".0%", rangemode: "tozero" } },
    }),
    latency: () => ({ traces: [line("rollout_p50", "p50", "c1"), line("rollout_p95", "p95", "c2"), line("rollout_p99", "p99", "c4")], layout: { yaxis: { rangemode: "tozero", ticksuffix: " s" } } }),
    tokens: () => ({
      traces: ["sampled_tokens", "loss_tokens"].map((name, k) => line(name, ["sampled", "trained"][k], ["c1", "c3"][k], { y: perSecond(name) })),
      layout: { yaxis: { rangemode: "tozero" } },
    }),
    queue: () => ({
      traces: [line("queue", "groups in the queue", "c1", { line: { width: 1.4, shape: "hv", color: colour("c1") } }), line("staleness", "mean staleness", "c2", { yaxis: "y2" })],
      layout: { yaxis: { rangemode: "tozero" }, yaxis2: { rangemode: "tozero" } },
    }),
    loss: () => ({ traces: [line("loss", "loss", "c1"), line("grad_norm", "gradient norm", "c2", { yaxis: "y2" })], layout: { yaxis2: { rangemode: "tozero" } } }),
    entropy: () => ({ traces: [line("entropy", "entropy", "c1")], layout: {} }),
    mismatch: () => ({ traces: [line("mismatch_kl", "KL(sampler, learner)", "c1")], layout: { yaxis: { rangemode: "tozero", exponentformat: "power" } } }),
    rate: () => ({ traces: [line("learning_rate", "learning rate", "c1")], layout: { yaxis: { exponentformat: "power" } } }),
  };

  const draw = () => {
    const known = (all.step || []).length;
    const size = patchgymPlots.stretch(known);
    columns = patchgymPlots.thin(all, size);
    waits = patchgymPlots.thin(allWaits, size);
    const each = size > 1 ? `, each point the mean of ${size}` : "";
    patchgymPlots.draw([...document.querySelectorAll("[data-chart]")].map((box) => {
      const chart = known ? charts[box.dataset.chart]() : { traces: [], layout: {} };
      return [box, chart.traces, chart.layout, `${known} steps${each}; the numbers are on the Steps page`];
    }));
  };

  // Drawing costs more than reading: it gets a fifth of the time, so that the numbers stay fresh.
  let pause = 0;
  let planned = 0;
  const drawSoon = () => {
    if (planned) return;
    planned = setTimeout(() => {
      planned = 0;
      const began = performance.now();
      draw();
      pause = Math.min(5000, 4 * (performance.now() - began));
    }, pause);
  };

  const add = (fresh) => {
    const steps = fresh.series;
    if (steps.origin !== origin || steps.start === 0) {
      all = {};
      allWaits = {};
    }
    origin = steps.origin;
    const length = steps.start;
    for (const [into, from] of [[all, steps.columns], [allWaits, steps.waits]]) {
      for (const [name, values] of Object.entries(from)) {
        const before = (into[name] || []).slice(0, length);
        while (before.length < length) before.push(into === allWaits ? 0 : null);
        into[name] = before.concat(values);
      }
    }
    heldout = fresh.heldout;
    if (window.patchgymKnown) {
      window.patchgymKnown.origin = origin;
      window.patchgymKnown.known = (all.step || []).length;
    }
    drawSoon();
  };

  document.addEventListener("fresh", (event) => add(event.detail));
  document.addEventListener("theme", draw);
  fetch(place.dataset.series).then((answer) => answer.json()).then(add);
})();
