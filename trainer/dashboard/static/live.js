// Asks for a page's parts again and puts them in, as long as the page is looked at.
"use strict";
(() => {
  const source = document.querySelector("[data-live]");
  if (!source) return;
  let seen = source.dataset.seen;
  let every = Number(source.dataset.every);
  const known = { origin: 0, known: 0 };
  let behind = 0;

  const put = (parts) => {
    for (const [id, html] of Object.entries(parts)) {
      const place = document.getElementById(id);
      if (!place) continue;
      if (place.dataset.html !== html && !place.contains(document.activeElement)) {
        const ticked = new Set([...place.querySelectorAll("input:checked")].map((box) => box.value));
        place.innerHTML = html; // escaped where it was made
        for (const box of place.querySelectorAll("input[type=checkbox]")) box.checked = ticked.has(box.value);
        place.dataset.html = html;
      }
    }
  };

  const look = async () => {
    if (document.hidden) return every;
    const query = new URLSearchParams({ seen, ...known });
    for (const [name, word] of new URLSearchParams(location.search)) query.append(name, word);
    const answer = await fetch(`${source.dataset.live}?${query}`, { headers: { Accept: "application/json" } });
    if (answer.status === 204) return every;
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = await answer.json();
    seen = fresh.seen;
    every = fresh.every;
    put(fresh.parts);
    document.dispatchEvent(new CustomEvent("fresh", { detail: fresh }));
    return every;
  };

  const again = async () => {
    let wait = 3000;
    try {
      wait = await look();
      behind = 0;
    } catch (error) {
      behind += 1; // the server is away: it is asked less often
      wait = Math.min(30000, 1000 * 2 ** behind);
    }
    document.documentElement.classList.toggle("cut-off", behind > 1);
    setTimeout(again, wait);
  };

  window.patchgymKnown = known;
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look().catch(() => {}); });
  setTimeout(again, every);
})();
