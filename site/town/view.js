// What a reader sees of the model, and does with it. A place of a page that
// has data-town says which panels it shows, and with data-try how it begins.

const STYLE = `
:host { display: block; }
.town { padding: 0.75rem 1rem; border-radius: 0.5rem; line-height: 1.5;
  border: 1px solid color-mix(in srgb, currentColor 30%, transparent); }
p { margin: 0.5rem 0; }
.words, .row { display: flex; flex-wrap: wrap; gap: 0.25rem 0.5rem;
  align-items: center; }
.words { gap: 0.125rem; margin-block: 0.25rem; }
.words i { flex-basis: 100%; }
button, input, select { font: inherit; color: inherit; min-height: 2.75rem;
  min-width: 2.75rem; padding: 0 0.5rem; background: transparent;
  border-radius: 0.25rem; border: 1px solid
  color-mix(in srgb, currentColor 60%, transparent); }
button { cursor: pointer; }
button:disabled { opacity: 0.55; cursor: default; }
button[aria-pressed=true] { border: 2px solid #0072b2; font-weight: 600;
  background: color-mix(in srgb, #0072b2 18%, transparent); }
.words button { padding: 0 0.3rem;
  border: 2px solid transparent; background: var(--weight, transparent); }
.words button:hover { border-color: currentColor; }
.words [aria-pressed=true] { border-color: currentColor;
  background: var(--weight, transparent); }
.words .later { font-style: italic; opacity: 0.75; }
.words .hidden { text-decoration: line-through 2px; }
.row label { display: flex; gap: 0.5rem; align-items: center;
  min-height: 2.75rem; max-width: 100%; }
[type=text] { flex: 1 1 7.5rem; width: 7.5rem; min-width: 0; }
[type=checkbox] { min-width: 0; width: 1.4rem; min-height: 0;
  height: 1.4rem; accent-color: #0072b2; }
[type=range] { padding: 0; width: 9rem; min-width: 4rem;
  accent-color: #0072b2; }
select { max-width: 100%; }
option { color: #000; background: #fff; }
:focus-visible { outline: 3px solid #d55e00; outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; margin: 0.75rem 0;
  font-variant-numeric: tabular-nums; }
caption { text-align: start; font-weight: 600; padding-block: 0.25rem;
  caption-side: top; color: inherit; }
th, td { padding: 0.125rem 0.5rem 0.125rem 0; font-weight: normal;
  text-align: start; }
thead th, .sum :is(th, td) { font-weight: 600; }
thead th { vertical-align: bottom; }
.number, .work thead th { text-align: end; }
.heads tbody :is(th, td:nth-child(3)) { white-space: nowrap; }
.sum { border-top: 1px solid; }
.next :is(td, thead th):not(:first-child) { width: 27%; }
.next th button { width: 100%; text-align: start; font-weight: 600; }
.bar { display: block; height: 0.5rem;
  border-radius: 0.125rem; background: var(--who); }
thead .truth, thead .model, thead .bigram { padding-inline-start: 0.3rem;
  border-inline-start: 0.5rem solid var(--who); }
.truth { --who: #009e73; } .model { --who: #0072b2; }
.bigram { --who: #d55e00; }
.heads :is(th, td):nth-child(2) { width: 50%; }
.heads svg { display: block; width: 100%; height: 1.75rem; fill: #0072b2;
  border-bottom: 1px solid currentColor; }
.heads :is(th, td):last-child { padding: 0; text-align: end; }
.group th { padding-top: 0.5rem; font-weight: 600; }
.panels { display: grid; gap: 0 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); }
.note, .proof { font-size: 0.875rem; }
a { color: inherit; }
.proof { opacity: 0.85; margin-bottom: 0; }
slot { display: none; }
@media (max-width: 30rem) { .town { padding: 0.5rem; }
  .words i { display: none; }
  .heads tbody td:nth-child(3) { white-space: normal; } .next th button { padding: 0 0.3rem; }
  th, td { padding-inline-end: 0.25rem; } .heads td { font-size: 0.875rem; }
  .heads th button { padding: 0 0.2rem; } .parts { font-size: 0.875rem; } }
@media (pointer: fine) and (min-width: 48rem) {
  :is(.words, .next, .heads) button { min-height: 2.25rem; } }
@media print { .town { display: none; } slot { display: block; } }
`;

// A story has at most so many words: with more, the page would stand still
// while they are read. So many letters of a word that is none are repeated.
const MOST_WORDS = 300, MOST_LETTERS = 30;

const WHO = ["truth", "model", "bigram"];
const NAMES = WHO.map((who) => `<span class="${who}">${who}</span>`);

const CHAPTER_11 = "11_small_language_model.html";
// What a reader may try: a text, what is set, and what to look at.
const TRIES = {
  omar: { name: "Where does Omar go back to?", at: CHAPTER_11,
    note: `He ran to the library, and a story can go on with nothing else. The
      darker a word, the more weight does head 3 of block 1 give it.` },
  mira: { name: "And Mira?", at: CHAPTER_11, asked: "mira",
    note: `The same story, asked about somebody else. The weight moves with the
      question.` },
  carrier: { name: "Without the carrier", at: CHAPTER_11, heads: ["1.3"],
    note: `The head that carries the answer is out: its weights are what they
      were, but what it found is not written down. Put it back, and take out
      head 0 of block 0 instead.` },
  bank: { name: "Which bank?", at: CHAPTER_11, head: "0.3",
    text: "<s> the children left the city bank at dawn and",
    note: `Children leave both banks, and who leaves the city's drives, hurries
      or marches. The bigram sees the word “and” alone. Choose “the” before
      “city”, and go on from there with “river”.` },
  number: { name: "Is or are?", at: CHAPTER_11, head: "0.3",
    text: "<s> the boats near the old bridge",
    note: `The boats decide, though the bridge stands nearest to the verb. The
      bigram sees the bridge alone.` },
  cache: { name: "No cache", at: "14_kv_cache.html", uncached: true,
    note: `For its last word the model has read the whole story again. What
      comes out is the same, and so is every word that you write now. Only the
      work is not.` },
  hot: { name: "Temperature 2", at: "15_generating_text.html", temperature: 2,
    text: "<s> mira went to the mill",
    note: `Unlikely words become likelier. Write on, and see which word is the
      first that no story has there.` },
  window: { name: "A window of 8", at: "18_fewer_keys.html", window: 8,
    note: `Each word sees itself and the seven before it, and the library
      stands thirteen words back. The model was not trained so.` },
  guess: { name: "Guess ahead", at: "20_guess_ahead.html", guesses: 4 },
};

const esc = (text) => String(text).replace(
  /[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const num = (x, decimals = 2) => {
  if (!Number.isFinite(x)) return "∞";
  const text = Math.abs(x).toFixed(decimals);
  return (x < 0 && Number(text) ? "−" : "") + text;
};
const many = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ",");
const sum = (list) => list.reduce((a, b) => a + b, 0);
const first = (list) => list.indexOf(Math.max(...list));
const best = (list, n) => [...list.keys()].sort(
  (a, b) => list[b] - list[a]).slice(0, n);

const press = (action, text, more = "") =>
  `<button data-do="${esc(action)}" ${more}>${esc(text)}</button>`;
const toggle = (action, on, text, label) =>
  press(action, text, `aria-pressed="${on}" aria-label="${esc(label)}"`);
const row = (name, cells, look = "") => `<tr class="${look}">
  <th scope="row">${name}</th>${cells.map((c) => `<td${
    /^[−+]?[\d.,∞–]+$/.test(c) ? ' class="number"' : ""}>${c}</td>`).join("")
  }</tr>`;
const table = (look, caption, columns, rows) => `<table class="${look}">
  <caption>${caption}</caption><thead><tr>${columns.map((c) => (c
    ? `<th scope="col">${c}</th>` : "<td></td>")).join("")}</tr></thead>
  <tbody>${rows.join("")}</tbody></table>`;

function panels(state, reading) {
  const { town, switches } = reading, { at } = state;
  const word = reading.words[at], quoted = `“${esc(word)}”`;
  const found = reading.found[at], blocks = found.weights.length;
  const heads = (n) => [...Array(town.model.n_heads).keys()].map(
    (h) => `${n}.${h}`);
  const weightsOf = (head) => {
    const [n, h] = head.split(".");
    return found.weights[n]?.[h] ?? [];
  };

  return {
    words() {
      const weights = weightsOf(state.head);
      return reading.words.map((text, n) => {
        const hidden = switches.hidden.has(n);
        const looks = [n > at ? "later" : "", hidden ? "hidden" : ""];
        return press(`pick ${n}`, text, `class="${looks.join(" ")}"
          aria-pressed="${n === at}" ${
          n in weights ? `title="weight ${num(weights[n])}"` : ""} ${
          hidden ? `aria-label="${esc(text)}, hidden"` : ""}
          style="--weight: color-mix(in srgb, #0072b2 ${
            Math.round(60 * (weights[n] ?? 0))}%, transparent)"`)
          + (text === "." ? "<i></i>" : "");
      }).join("");
    },

    next() {
      if (word === town.grammar.end) return "<p>The story has ended.</p>";
      const by = reading.next(at);
      const all = [...by.model.keys()].map((n) => sum(
        WHO.map((who) => by[who]?.[n] ?? 0)));
      const shown = best(all, 6), cell = (who, p) => (p === undefined ? "–"
        : `${num(p)}<span class="bar ${who}"
          style="width: ${Math.round(100 * p)}%"></span>`);
      const rest = (who) => (by[who] ? Math.max(0, 1 - sum(
        shown.map((n) => by[who][n]))) : undefined);
      return table("next", `What follows ${quoted}? Choose a word.`,
        ["", ...NAMES],
        [...shown.map((n) => row(press(`go ${town.words[n]}`, town.words[n]),
          WHO.map((who) => cell(who, by[who]?.[n])))),
        row(`${by.model.length - shown.length} more`,
          WHO.map((who) => cell(who, rest(who))))]);
    },

    paid() {
      if (!at) return "";
      const paid = reading.losses(at);
      return table("", "What was paid, −log p, in nats",
        ["", ...NAMES],
        [row(`for ${quoted}`, WHO.map((who) => num(paid[who].at(-1), 3))),
          row("a word, so far", WHO.map(
            (who) => num(sum(paid[who]) / at, 3)), "sum")])
        + `<p class="note">In the mean over all stories the truth pays
          ${town.entropy} nats a word, the language’s entropy. Nobody pays
          less for long.</p>`;
    },

    heads() {
      const one = (head) => {
        const weights = weightsOf(head), top = best(weights, 3);
        const [n, h] = head.split("."), name = `head ${h} of block ${n}`;
        const told = top.map(
          (i) => `${reading.words[i]} ${num(weights[i])}`).join(", ");
        return row(toggle(`head ${head}`, head === state.head, `head ${h}`,
          `show ${name}`), [
          `<svg viewBox="0 0 ${reading.words.length} 1" role="img"
            preserveAspectRatio="none" aria-label="${esc(told || "none")}">
            <path d="${[...weights].map((w, i) => (
              `M${i + 0.1} ${1 - w}h0.8V1h-0.8z`)).join("")}"/></svg>`,
          top.length ? `${esc(reading.words[top[0]])} ${
            num(weights[top[0]])}` : "–",
          toggle(`out ${head}`, switches.heads.has(head), "out",
            `take ${name} out`)]);
      };
      return table("heads", `Where ${quoted} looks: the weights of every head`,
        ["", "on the words above", "most on", ""],
        [...Array(blocks).keys()].flatMap((n) => [
          row(`block ${n}`, ["", "", toggle(`block ${n}`,
            switches.blocks.has(n), "out", `take block ${n} out`)], "group"),
          ...heads(n).map(one)]));
    },

    parts() {
      const shares = town.model.shares(found), top = first(found.logits);
      const name = esc(town.words[top]);
      return table("parts", `What each part writes at ${quoted}`,
        ["", "length", "raises most", `for “${name}”`],
        [...shares.map(([part, share], i) => row(part, [
          found.parts[i] ? num(Math.hypot(...found.parts[i][1])) : "–",
          best(share, 2).map((n) => esc(town.words[n])).join(", "),
          num(share[top])])),
        row("all together", [num(Math.hypot(...found.stream)),
          best(found.logits, 2).map((n) => esc(town.words[n])).join(", "),
          num(sum(shares.map(([, share]) => share[top])))], "sum")])
        + `<p class="note">The stream is the sum of what its parts have
          written. The last norm divides all of them by one number, and the
          table of embeddings makes of each a share of every word’s logit. The
          shares add up to the logit: here that of “${name}”.</p>`;
    },

    work() {
      const { alone, took } = reading, again = reading.again();
      return table("work", "Multiplications", ["", "cache", "no cache"],
        [row("for the last word", [many(alone.at(-1)), many(again.at(-1))]),
          row("for all, one by one", [many(sum(alone)), many(sum(again))])])
        + `<p class="note">${reading.cached ? "The last word took"
          : `Without the cache its logits differ by ${
            reading.difference} at most. The last word took`} ${
          many(took)}.</p>`;
    },
  };
}

// What a screen reader is told, in a sentence or two.
function say(state, reading) {
  const { town } = reading, { at } = state, word = reading.words[at];
  const fault = reading.truth.indexOf(null) - 1;
  const wrong = fault >= 0 ? ` No story has “${reading.words[fault]}” as its
    word ${fault}.` : "";
  if (word === town.grammar.end) return `The story has ended.${wrong}`;
  const by = reading.next(at);
  const told = (who, p) => `${who} ${num(p[first(p)])} to “${
    town.words[first(p)]}”`;
  return `After “${word}” the model gives ${told("", by.model).trim()}${
    by.truth ? `, the truth ${told("", by.truth).trim()}` : ""}, the bigram ${
    told("", by.bigram).trim()}.${wrong}`;
}

const SKELETON = `<style>${STYLE}</style>
<section class="town" aria-label="The town’s model answers here">
<div class="words" role="group" aria-label="The story" data-panel="words">
</div>
<div class="row">${press("undo", "Undo")}${press("write", "Write a word")}
${press("on", "Write on")}${press("anew", "Start anew")}
<form class="row"><input type="text" aria-label="Words to add" list="known"
  placeholder="type words" autocomplete="off" autocapitalize="none">
<button>Add</button><datalist id="known"></datalist></form></div>
<p class="say" role="status"></p>
<div data-panel="next"></div>
<div data-part="tries"><p>Try:</p><div class="row" role="group"
  aria-label="What to try">${Object.entries(TRIES).map(
    ([key, { name }]) => press(`try ${key}`, name, 'aria-pressed="false"'))
    .join("")}</div><p class="note" role="status"></p></div>
<div class="row" data-part="switches">
<label>Temperature <input type="range" min="0" max="2" step="0.1"
  data-set="temperature"><output></output></label>
<label><input type="checkbox" data-set="cached"> KV cache</label>
<label>A word sees <select data-set="window"><option value="0">all before it
</option><option value="8 0">the last 8</option><option value="8 4">the last 8
and the first 4</option></select></label>
<button data-do="hide"></button>${press("reset", "All on again")}</div>
<div class="panels"><div data-panel="paid"></div><div data-panel="work"></div>
</div>
<div data-panel="heads"></div><div data-panel="parts"></div>
<p class="proof"></p></section><slot></slot>`;

// Give a node the children that another has, where they differ. What stays is
// neither laid out nor painted again, and keeps the focus.
function adapt(node, wanted) {
  const there = [...node.childNodes], all = [...wanted.childNodes];
  all.forEach((child, i) => {
    const old = there[i];
    if (!old) node.append(child);
    else if (old.nodeName !== child.nodeName) old.replaceWith(child);
    else if (child.nodeType === Node.TEXT_NODE) {
      if (old.data !== child.data) old.data = child.data;
    } else if (!old.isEqualNode(child)) {
      for (const { name, value } of child.attributes) {
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      }
      for (const { name } of [...old.attributes]) {
        if (!child.hasAttribute(name)) old.removeAttribute(name);
      }
      adapt(old, child);
    }
  });
  for (const old of there.slice(all.length)) old.remove();
}

// The town's model in a place of a page.
function mount(host, town, proof) {
  const root = host.attachShadow({ mode: "open" });
  root.innerHTML = SKELETON;
  const get = (css) => root.querySelector(css);
  const asked = new Set(["words", ...host.dataset.town.split(" ")]);
  for (const part of root.querySelectorAll("[data-panel], [data-part]")) {
    if (!asked.has(part.dataset.panel ?? part.dataset.part)) part.remove();
  }
  get(".proof").textContent = proof;
  get("datalist").innerHTML = town.words.map(
    (word) => `<option value="${esc(word)}">`).join("");

  const reading = new Reading(town, [town.grammar.start]);
  const state = { at: 0, head: "1.3", tried: "" };
  const before = [];  // texts, to go back to
  const end = () => reading.words.length - 1;

  function note(html) {
    const place = get("[data-part=tries] .note");
    if (place) place.innerHTML = html;
  }

  function show() {
    const held = root.activeElement, found = panels(state, reading);
    for (const place of root.querySelectorAll("[data-panel]")) {
      const wanted = document.createElement("template");
      wanted.innerHTML = found[place.dataset.panel]();
      adapt(place, wanted.content);
    }
    if (held?.isConnected === false) get("[data-do=undo]").focus();
    for (const button of root.querySelectorAll("[data-do^=try]")) {
      button.setAttribute(
        "aria-pressed", button.dataset.do === `try ${state.tried}`);
    }
    get("[data-do=write]").disabled = reading.ended();
    get("[data-do=on]").disabled = reading.ended();
    get("[data-do=undo]").disabled = !before.length;
    get(".say").textContent = say(state, reading);
    if (!asked.has("switches")) return;
    const { window: last, sinks, hidden } = reading.switches;
    const [heat, cached, seen] = root.querySelectorAll("[data-set]");
    heat.value = reading.temperature;
    heat.nextElementSibling.textContent = num(reading.temperature, 1);
    cached.checked = reading.cached;
    seen.value = last === Infinity ? "0" : `${last} ${sinks}`;
    get("[data-do=hide]").textContent = `${
      hidden.has(state.at) ? "Show" : "Hide"} “${reading.words[state.at]}”`;
  }

  // Change the text; `change` may write into the reading, or give new words.
  function edit(change) {
    before.push([...reading.words]);
    const words = change();
    if (words) reading.read(words);
    state.at = end();
  }

  // Change what is switched; nothing that was kept holds any more.
  function turn(change) {
    change(reading.switches);
    reading.read();
  }

  const flip = (set, item) => set.delete(item) || set.add(item);

  function reset() {
    reading.switches = ALL_ON();
    Object.assign(reading, { cached: true, temperature: 1 });
  }

  // A word as the town writes it: in small letters, as all of its words are.
  const known = (word) => town.number.has(word) ? word : word.toLowerCase();

  function go(typed) {
    const words = typed.map(known);
    const unknown = words.find((word) => !town.number.has(word));
    if (unknown !== undefined) {
      const shown = unknown.length > MOST_LETTERS
        ? `${unknown.slice(0, MOST_LETTERS)}…` : unknown;
      get(".say").textContent = `“${shown}” is none of the town’s ${
        town.words.length} words.`;
      return false;
    }
    if (state.at + 1 + words.length > MOST_WORDS) {
      get(".say").textContent = `A story has at most ${MOST_WORDS} words here; `
        + `these ${words.length} and the ${state.at + 1} before them are more.`;
      return false;
    }
    edit(() => {
      reading.cut(state.at + 1);
      for (const word of words) {
        if (!reading.ended()) reading.push(word);
      }
    });
    return true;
  }

  function guess(n) {
    if (reading.ended()) reading.read([town.grammar.start]);
    let told;
    edit(() => { told = reading.guessAhead(n); });
    const { guesses, kept } = told;
    note(`The bigram guessed “${esc(guesses.join(" "))}”; the model read that
      in one go, kept ${kept} of ${guesses.length} words and wrote one of its
      own. What is written has the model’s distribution. Press again. (${
      link(TRIES.guess.at)})`);
  }

  function tryOut(key) {
    const one = TRIES[key];
    state.tried = key;
    if (one.guesses) return guess(one.guesses);
    reset();
    reading.switches.heads = new Set(one.heads);
    reading.switches.window = one.window ?? Infinity;
    reading.temperature = one.temperature ?? 1;
    reading.cached = !one.uncached;
    state.head = one.head ?? "1.3";
    const words = (one.text ?? town.story).split(" ");
    if (one.asked) words[words.lastIndexOf("omar")] = one.asked;
    edit(() => words);
    note(`${one.note} (${link(one.at)})`);
  }

  const actions = {
    pick: (n) => { state.at = Number(n); },
    go: (word) => go([word]),
    undo: () => {
      reading.read(before.pop());
      state.at = end();
    },
    write: () => edit(() => { reading.write(); }),
    on: () => edit(() => {
      while (!reading.ended() && end() < 80) reading.write();
    }),
    anew: () => edit(() => [town.grammar.start]),
    head: (name) => { state.head = name; },
    out: (name) => turn(({ heads }) => flip(heads, name)),
    block: (n) => turn(({ blocks }) => flip(blocks, Number(n))),
    hide: () => turn(({ hidden }) => flip(hidden, state.at)),
    reset: () => {
      reset();
      reading.read();
    },
    try: (key) => {
      tryOut(key);
      if (TRIES[key].guesses) return;
      get(".words").scrollIntoView({ block: "nearest" });
    },
  };

  root.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-do]");
    if (!button) return;
    const [action, ...rest] = button.dataset.do.split(" ");
    if (actions[action](rest.join(" ")) !== false) show();
  });
  get("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const input = get("[type=text]");
    const words = input.value.trim().split(/\s+/).filter(Boolean);
    if (!words.length || !go(words)) return;
    input.value = "";
    show();
  });
  root.addEventListener("input", ({ target }) => {
    const { set } = target.dataset;
    if (!set) return;
    if (set === "temperature") reading.temperature = Number(target.value);
    if (set === "cached") {
      reading.cached = target.checked;
      reading.read();
    }
    if (set === "window") {
      const [last, sinks = 0] = target.value.split(" ").map(Number);
      turn((it) => Object.assign(it, { window: last || Infinity, sinks }));
    }
    show();
  });

  tryOut(host.dataset.try ?? "omar");
  before.length = 0;
  show();
  // The picture of the same cell is for print, and for where no script runs.
  host.closest(".cell_output")?.classList.add("alive");
  host.insertAdjacentHTML("beforeend", `<style>@media screen {
    .alive img { display: none; } }</style>`);
}

const link = (page) => `<a href="${page}">chapter ${parseInt(page)}</a>`;

// Counts of pairs, as [second, how often, second, …] for each first word; with
// a hundredth more, no pair is impossible.
function bigrams(pairs) {
  const tables = pairs.map((found) => {
    const counts = pairs.map(() => 0.01);
    for (let i = 0; i < found.length; i += 2) counts[found[i]] += found[i + 1];
    const total = sum(counts);
    return counts.map((count) => count / total);
  });
  return (token) => tables[token];
}

const makeTown = async (data) => ({
  ...data,
  number: new Map(data.words.map((word, n) => [word, n])),
  bigram: bigrams(data.pairs),
  model: new Model(data.config, await unpack(data.weights)),
});

// Nothing is shown before the model has found the notebook's numbers.
async function start(hosts, data) {
  const town = await makeTown(data);
  const most = await largestDifference(town, data.checks);
  town.model.products = 0;
  for (const host of hosts) {
    if (most <= 1e-5) {
      mount(host, town, `Runs in this page, in ${many(sum(Object.values(
        data.weights.tensors).map(([size]) => size)))} weights. Before it was
        shown it computed ${data.checks.length} texts: its logits differ from
        the notebooks’ by ${most.toFixed(6)} at most.`);
    } else {
      host.classList.add("silent");
      host.insertAdjacentHTML("beforeend", `<p role="alert">The model does not
        answer here: its logits differ from the notebooks’ by ${
        most.toFixed(6)}.</p>`);
    }
  }
}
