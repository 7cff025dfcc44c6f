// The trajectory viewer: keys, tokens, links to a turn or a token, copies. Foreign text only ever
// becomes the text of a node (textContent), never markup.
"use strict";
(() => {
  const one = (query, root = document) => root.querySelector(query);
  const all = (query, root = document) => [...root.querySelectorAll(query)];
  const view = one("#trajectory");

  // ---- keys
  const follow = (query) => {
    const link = one(query);
    if (link) link.click();
    return Boolean(link);
  };
  const dialog = one("#keys");
  for (const button of all("[data-help]")) button.addEventListener("click", () => dialog.showModal());

  const choices = () => all("#rows tbody tr").filter((each) => one("a.opens", each));
  const choose = (step) => {
    const rows = choices();
    if (!rows.length) return false;
    const now = rows.findIndex((row) => row.classList.contains("chosen"));
    const next = now < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(now + step, 0), rows.length - 1);
    rows.forEach((row, at) => row.classList.toggle("chosen", at === next));
    const link = one("a.opens", rows[next]);
    link.focus({ preventScroll: true });
    rows[next].scrollIntoView({ block: "nearest" });
    return true;
  };
  const turn = (step) => {
    const turns = all(".turn");
    const bar = 52; // the run's bar covers the top
    const tops = turns.map((each) => each.getBoundingClientRect().top - bar);
    const next = step > 0 ? tops.findIndex((top) => top > 4) : tops.findLastIndex((top) => top < -4);
    if (next < 0) return false;
    location.hash = turns[next].id;
    turns[next].focus({ preventScroll: true });
    return true;
  };
  const jump = (id) => {
    if (!document.getElementById(id)) return false;
    location.hash = id;
    return true;
  };

  const inView = {
    j: () => follow('a[rel="next"]'), k: () => follow('a[rel="prev"]'),
    ArrowRight: () => follow('a[rel="next"]'), ArrowLeft: () => follow('a[rel="prev"]'),
    n: () => turn(1), p: () => turn(-1), t: () => { showTokens(!tokensShown()); return true; },
    g: () => follow("#to-group"), u: () => follow("#to-list"),
    d: () => jump("patch"), e: () => jump("tests"), r: () => jump("reward"),
  };
  const inList = {
    j: () => choose(1), k: () => choose(-1), ArrowDown: () => choose(1), ArrowUp: () => choose(-1),
    n: () => follow('.pager a[rel="next"]'), p: () => follow('.pager a[rel="prev"]'),
    u: () => follow("#to-list"),
    "/": () => { const field = one("#search"); if (field) field.focus(); return Boolean(field); },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input, select, textarea, dialog[open]")) return;
    // Arrows scroll what can be scrolled, and go from token to token.
    if (event.key.startsWith("Arrow") && event.target.closest("pre, .diff-scroll, .tok")) return;
    if (event.key === "?") { dialog.showModal(); event.preventDefault(); return; }
    const act = (view ? inView : inList)[event.key];
    if (act && act()) event.preventDefault();
  });

  // ---- copies
  for (const button of all("[data-copy]")) {
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = "Copied";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(one("code", button.parentElement));
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
  if (!view) return;

  // ---- what a turn read
  for (const details of all("details.context")) {
    details.addEventListener("toggle", async () => {
      const box = one("pre", details);
      if (!details.open || box.dataset.done) return;
      box.dataset.done = "1";
      box.textContent = "…";
      const answer = await fetch(details.dataset.part);
      const text = answer.ok ? await answer.text() : "It can't be spelled: the model is not on this machine. The tokens view has the ids.";
      const most = 40000;
      box.textContent = visible(text.slice(0, most));
      if (text.length > most) {
        const link = document.createElement("a");
        link.href = details.dataset.part;
        link.textContent = `\n${(text.length - most).toLocaleString("en")} more characters: all of it as plain text`;
        box.append(link);
      }
    });
  }
  // As `inert` does on the server: nothing hidden stays hidden.
  const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\u{e0000}-\u{e0fff}]/gu;
  const visible = (text) => text.replace(hidden, (each) => {
    const code = each.codePointAt(0);
    return code < 0x20 || code === 0x7f ? `^${String.fromCodePoint(code ^ 0x40)}` : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });

  // ---- tokens
  const bar = one("#token-bar");
  const facts = one("#token-facts");
  const steps = [0.9, 0.6, 0.368, 0.135, 0.018];
  const shade = (logprob) => {
    const found = steps.findIndex((step) => Math.exp(logprob) >= step);
    return found < 0 ? steps.length : found;
  };
  const tokensShown = () => !bar.hidden;
  const showTokens = (on) => {
    bar.hidden = !on;
    one("#as-text").setAttribute("aria-pressed", String(!on));
    one("#as-tokens").setAttribute("aria-pressed", String(on));
    for (const each of all(".turn > .as-text")) each.hidden = on;
    for (const each of all(".turn > .as-tokens")) {
      each.hidden = !on;
      if (on && !each.dataset.asked) seen.observe(each);
    }
  };
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) load(entry.target.closest(".turn"));
  }, { rootMargin: "400px" });
  one("#as-text")?.addEventListener("click", () => showTokens(false));
  one("#as-tokens")?.addEventListener("click", () => showTokens(true));

  const ask = async (number, start, most) => {
    const query = new URLSearchParams({ turn: number, start, most });
    const answer = await fetch(`${view.dataset.tokens}?${query}`);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return answer.json();
  };
  const load = async (article, start = -200) => {
    const place = one(".as-tokens", article);
    if (place.dataset.asked && start === -200) return place.ready;
    place.dataset.asked = "1";
    if (!place.firstChild) place.textContent = "Loading…";
    seen.unobserve(place);
    place.ready = (async () => {
      try {
        draw(article, place, await ask(article.dataset.turn, start, 4000));
      } catch (error) {
        place.textContent = `The tokens can't be shown: ${error.message}`;
      }
    })();
    return place.ready;
  };
  const button = (words, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "more";
    made.textContent = words;
    made.addEventListener("click", act);
    return made;
  };
  const draw = (article, place, found) => {
    const box = document.createElement("div");
    box.className = "tokens";
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Tokens of turn ${article.dataset.turn}`);
    const end = found.start + found.tokens.length;
    found.tokens.forEach(([id, text, logprob, version], index) => {
      const at = found.start + index;
      if (at === found.context) box.append(separator("sampled from here on"));
      const made = document.createElement("span");
      const sampled = at >= found.context;
      made.className = sampled ? `tok sampled${logprob === null ? "" : ` p${shade(logprob)}`}` : "tok read";
      made.textContent = text ? text.replaceAll("\n", "↵\n").replaceAll("\t", "⇥\t") : `⟨${id}⟩`;
      made.id = `turn-${article.dataset.turn}-token-${at}`;
      made.tabIndex = -1;
      made.data = { id, text, logprob, version, at, sampled };
      made.setAttribute("aria-label", spoken(made.data));
      box.append(made);
    });
    const first = one(".tok.sampled", box) || one(".tok", box);
    if (first) first.tabIndex = 0;
    const parts = [box];
    if (found.note) {
      const note = document.createElement("p");
      note.className = "muted";
      note.textContent = found.note;
      parts.unshift(note);
    }
    if (found.start > 0) {
      parts.unshift(button(`${found.start.toLocaleString("en")} ids before these`, () => load(article, Math.max(0, found.start - 3800))));
    }
    if (end < found.total) {
      parts.push(button(`${(found.total - end).toLocaleString("en")} ids after these`, () => load(article, end - 100)));
    }
    place.replaceChildren(...parts);
  };
  const separator = (words) => {
    const made = document.createElement("span");
    made.className = "sep";
    made.textContent = words;
    return made;
  };
  const spoken = ({ id, text, logprob, sampled }) =>
    `${text.trim() || "space"}, id ${id}, ${sampled ? "sampled" : "read"}${logprob === null ? "" : `, log-probability ${logprob.toFixed(3)}`}`;
  const tell = (token) => {
    const { id, text, logprob, version, at, sampled } = token.data;
    const inLoss = view.classList.contains("in-loss") && sampled;
    const shown = document.createElement("b");
    shown.textContent = JSON.stringify(text).slice(0, 200);
    const words = [`id ${id}`, `place ${at}`];
    if (sampled && logprob !== null) {
      words.push(`log-probability ${logprob.toFixed(4)}`, `probability ${(100 * Math.exp(logprob)).toPrecision(3)}%`, `policy version ${version}`);
    }
    words.push(inLoss ? "in the loss" : sampled ? "sampled, not in the loss" : "read, not in the loss");
    facts.replaceChildren(shown, ...words.map((word) => {
      const made = document.createElement("span");
      made.textContent = word;
      return made;
    }));
    for (const each of all(".tok.at")) each.classList.remove("at");
    token.classList.add("at");
  };
  view.addEventListener("mouseover", (event) => { if (event.target.data) tell(event.target); });
  view.addEventListener("focusin", (event) => { if (event.target.data) tell(event.target); });
  view.addEventListener("click", (event) => {
    if (!event.target.data) return;
    event.target.focus();
    history.replaceState(null, "", `#${event.target.id}`);
  });
  view.addEventListener("keydown", (event) => {
    if (!event.target.data) return;
    const tokens = all(".tok", event.target.closest(".tokens"));
    const now = tokens.indexOf(event.target);
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (next === undefined || !tokens[next]) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    tokens[next].tabIndex = 0;
    tokens[next].focus();
  });

  // ---- links to a token or a turn
  const arrive = async () => {
    const found = /^#turn-(\d+)-token-(\d+)$/.exec(location.hash);
    if (!found) return;
    const article = document.getElementById(`turn-${found[1]}`);
    if (!article) return;
    showTokens(true);
    await load(article);
    const name = location.hash.slice(1);
    if (!document.getElementById(name)) await load(article, Math.max(0, Number(found[2]) - 200));
    const token = document.getElementById(name);
    if (!token) return;
    token.tabIndex = 0;
    token.focus({ preventScroll: true });
    token.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", arrive);
  arrive();

  // ---- the outline follows the page
  const outline = new Map(all(".outline a").map((link) => [link.hash.slice(1), link]));
  const mark = new IntersectionObserver(() => {
    const now = [...outline.keys()].map((id) => document.getElementById(id)).filter(Boolean)
      .filter((each) => each.getBoundingClientRect().top < innerHeight * 0.4).pop();
    for (const [id, link] of outline) link.classList.toggle("at", Boolean(now) && now.id === id);
  }, { threshold: [0, 0.25, 0.5, 0.75, 1], rootMargin: "-46px 0px -40% 0px" });
  for (const id of outline.keys()) {
    const part = document.getElementById(id);
    if (part) mark.observe(part);
  }
})();
