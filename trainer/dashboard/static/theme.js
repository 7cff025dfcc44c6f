// Light, dark, or as the system has it: set before the page is painted, kept for the next one.
"use strict";
(() => {
  const order = ["system", "light", "dark"];
  const root = document.documentElement;
  const stored = () => {
    const word = localStorage.getItem("theme");
    return order.includes(word) ? word : "system";
  };
  const apply = (word) => {
    if (word === "system") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", word);
    const label = document.querySelector("#theme span");
    if (label) label.textContent = word;
    document.dispatchEvent(new CustomEvent("theme"));
  };
  apply(stored());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(stored()));
  document.addEventListener("DOMContentLoaded", () => {
    apply(stored());
    document.querySelector("#theme").addEventListener("click", () => {
      const next = order[(order.indexOf(stored()) + 1) % order.length];
      localStorage.setItem("theme", next);
      apply(next);
    });
  });
})();
