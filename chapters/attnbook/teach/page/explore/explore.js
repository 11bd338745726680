// The engine of the interactive figures. A figure's own file follows it and
// calls `define`; the two stand in one function, so that nothing is global.
//
// A figure is a function of the cell's data that returns
//   controls             the list of its controls, see `widget`
//   values(state)        the numbers of a state, a plain object
//   draw(state, values, width)  its picture, as HTML, in so many pixels
//   say(state, values)   what a screen reader is told, in a sentence
//   drag(state, x, y, mark, width)  optional: the state after a mark of the
//                        picture was pulled to this place of its svg
//   pick(state, mark)    optional: the state after a mark was clicked on
// Every state can be reached by the controls, which keyboards and screen
// readers know; `drag` and `pick` are a second way for mouse and finger. A
// mark is the data-mark of an element; one with data-drag can be pulled: it
// must keep its place among its siblings, or the finger loses its hold.

const STYLE = `
:host { display: block; margin: 1rem 0; }
figure { margin: 0; padding: 0.75rem 1rem; border-radius: 0.5rem;
  border: 1px solid color-mix(in srgb, currentColor 30%, transparent); }
figcaption { font-weight: 600; margin-bottom: 0.5rem; }
.controls { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; }
.control { display: flex; gap: 0.5rem; align-items: center;
  min-height: 2.25rem; max-width: 100%; }
.control:has([type=range]) { flex: 1 1 15rem; }
.control input[type=range] { flex: 1; min-width: 4rem;
  accent-color: #0072b2; height: 1.5rem; margin: 0; }
.control input[type=checkbox] { width: 1.25rem; height: 1.25rem;
  accent-color: #0072b2; }
[type=range] + span { min-width: 3.5rem; text-align: right; }
select, button { font: inherit; color: inherit; min-height: 2.25rem;
  padding: 0 0.75rem; background: transparent; border-radius: 0.25rem;
  border: 1px solid color-mix(in srgb, currentColor 60%, transparent); }
select { flex: 1; min-width: 0; }
option { color: #000; background: #fff; }
button { cursor: pointer; }
:focus-visible { outline: 3px solid #d55e00; outline-offset: 2px; }
.picture { overflow-x: auto; margin: 0.5rem 0; }
svg { display: block; margin: auto; fill: currentColor; font-size: 13px;
  user-select: none; }
[data-drag] { cursor: grab; }
[data-mark]:not([data-drag]) { cursor: pointer; }
table { border-collapse: collapse; margin: 0.5rem auto;
  font-size: 0.875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: 0.875rem; padding: 0.25rem 0; }
th, td { padding: 0.2rem 0.5rem; text-align: right; font-weight: normal; }
th { font-weight: 600; }
.bars { width: 100%; }
.bars td:nth-child(2) { width: 100%; padding-inline: 0; }
.bars i { display: block; height: 1.1rem; min-width: 1px; }
p { margin: 0.25rem 0; }
.proof { font-size: 0.8125rem; opacity: 0.85; }
slot { display: none; }
@media print { figure { display: none; } slot { display: block; } }
`;

// Colours for lines and bars; they stand out on white and on black, and stay
// apart for colour-blind readers (Okabe and Ito, 2008). Text is currentColor.
const BLUE = "#0072b2", ORANGE = "#d55e00", GREEN = "#009e73";

const sum = (list) => list.reduce((total, x) => total + x, 0);
const dot = (a, b) => sum(a.map((x, i) => x * b[i]));
const softmax = (scores) => {
  const top = Math.max(...scores);
  const parts = scores.map((s) => Math.exp(s - top));
  const total = sum(parts);
  return parts.map((p) => p / total);
};
const range = (n) => [...Array(n).keys()];

// A number as text: a true minus sign, and no minus before 0.00.
const num = (x, decimals = 2) => {
  const text = Math.abs(x).toFixed(decimals);
  return (x < 0 && Number(text) !== 0 ? "−" : "") + text;
};

const esc = (text) => String(text).replace(
  /[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

// The background of a cell of a heat map; text reads well on all of it.
const shade = (share, colour = BLUE) => "background: color-mix(in srgb, "
  + `${colour} ${px(60 * share)}%, transparent)`;

// A picture in pixels. It is described by the sentence below it.
const svg = (width, height, body) => `<svg width="${width}"
  height="${height}" aria-hidden="true">${body}</svg>`;

const px = (x) => Math.round(x * 10) / 10;

const label = (x, y, text, more = "") =>
  `<text x="${px(x)}" y="${px(y)}" ${more}>${esc(text)}</text>`;

const path = (points, colour, more = "") =>
  `<polyline points="${points.map((p) => p.map(px).join()).join(" ")}"
    fill="none" stroke="${colour}" stroke-width="2" ${more}/>`;

// Bars with names and numbers, as a table: rows of [name, share, text].
const bars = (caption, rows, colour = BLUE) =>
  `<table class="bars"><caption>${esc(caption)}</caption>${
    rows.map(([name, share, text]) => `<tr><th scope="row">${esc(name)}</th>
      <td><i style="width: ${px(100 * Math.max(0, share))}%;
        background: ${colour}"></i></td><td>${esc(text)}</td></tr>`)
      .join("")}</table>`;

// A table of numbers: a caption, the columns' names, rows that begin with
// their name. A cell is text, or [text, style].
const table = (caption, columns, rows) =>
  `<table><caption>${esc(caption)}</caption><tr>${
    columns.map((c) => c ? `<th scope="col">${esc(c)}</th>` : "<td></td>")
      .join("")}</tr>${
    rows.map(([name, ...cells]) => `<tr><th scope="row">${esc(name)}</th>${
      cells.map((cell) => Array.isArray(cell)
        ? `<td style="${cell[1]}">${esc(cell[0])}</td>`
        : `<td>${esc(cell)}</td>`).join("")}</tr>`).join("")}</table>`;

// One control: a range {name, label, min, max, step, text(value)}, a choice
// {name, label, options: [text, ...]} whose value is the option's number, a
// check {name, label, check: true}, or a button {label, press(state)}.
function widget(spec, id) {
  const title = `<label for="${id}">${esc(spec.label)}</label>`;
  if (spec.press) return `<button id="${id}">${esc(spec.label)}</button>`;
  if (spec.options) {
    return `${title}<select id="${id}">${spec.options.map((text, i) =>
      `<option value="${i}">${esc(text)}</option>`).join("")}</select>`;
  }
  if (spec.check) return `<input type="checkbox" id="${id}">${title}`;
  return `${title}<input type="range" id="${id}" min="${spec.min}"
    max="${spec.max}" step="${spec.step}"><span aria-hidden="true"></span>`;
}

// Where two states' numbers differ: " weights 2", or nothing. The data are
// rounded to six digits, and what is shown has two or three.
function difference(ours, theirs, place = "") {
  if (typeof theirs === "number") {
    const bound = 2e-4 * Math.max(1, Math.abs(theirs));
    return Math.abs(ours - theirs) <= bound ? "" : place;
  }
  if (theirs === null || typeof theirs !== "object") {
    return ours === theirs ? "" : place;
  }
  if (Array.isArray(theirs) && theirs.length !== ours?.length) return place;
  for (const key of Object.keys(theirs)) {
    const found = difference(ours?.[key], theirs[key], `${place} ${key}`);
    if (found) return found;
  }
  return "";
}

// Changes a tree into another, and keeps the nodes that both have: a finger
// would lose its hold of a node that is replaced.
function morph(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    old.setAttribute(name, value);
  }
  const before = [...old.childNodes], after = [...fresh.childNodes];
  for (const node of before.slice(after.length)) node.remove();
  after.forEach((node, i) => {
    if (!before[i]) old.append(node);
    else if (before[i].nodeName !== node.nodeName) before[i].replaceWith(node);
    else if (node.attributes) morph(before[i], node);
    else before[i].data = node.data;
  });
}

function start(host, make) {
  const data = JSON.parse(host.querySelector("script").textContent);
  const figure = make(data);
  for (const { state, values } of data.checks) {
    const found = difference(figure.values(state), values);
    if (found) {  // the picture of the cell stays
      host.insertAdjacentHTML("beforeend", `<p role="alert">This figure is
        not shown: its${found} at ${esc(JSON.stringify(state))} differs from
        the notebook's.</p>`);
      return;
    }
  }

  const root = host.attachShadow({ mode: "open" });
  root.innerHTML = `<style>${STYLE}</style><figure aria-label="${
    esc(data.title)}"><figcaption>${esc(data.title)}</figcaption>
    <div class="controls">${figure.controls.map((spec, i) =>
      `<div class="control">${widget(spec, `c${i}`)}</div>`).join("")}</div>
    <div class="picture" role="group" aria-label="Picture"></div>
    <p class="say" role="status"></p>
    <p class="proof">Agrees with the notebook’s numbers at ${
      data.checks.length} settings.</p></figure><slot></slot>`;
  const picture = root.querySelector(".picture");
  const input = (i) => root.getElementById(`c${i}`);
  let state = { ...data.start }, width = 0;

  function show() {
    width = Math.min(560, picture.clientWidth || 480);
    figure.controls.forEach((spec, i) => {
      if (spec.press) return;
      const value = state[spec.name];
      if (spec.check) input(i).checked = value;
      else input(i).value = value;
      if (spec.text) {
        const text = spec.text(value, state);
        input(i).setAttribute("aria-valuetext", text);
        input(i).nextElementSibling.textContent = text;
      }
    });
    const values = figure.values(state);
    const fresh = picture.cloneNode();
    fresh.innerHTML = figure.draw(state, values, width);
    morph(picture, fresh);
    root.querySelector(".say").textContent = figure.say(state, values);
    // What scrolls must be within reach of the keyboard.
    if (picture.scrollWidth > picture.clientWidth) picture.tabIndex = 0;
    else picture.removeAttribute("tabindex");
  }

  function set(change) {
    if (!Object.keys(change).some((key) => change[key] !== state[key])) {
      return;
    }
    state = { ...state, ...change };
    for (const { name, min, max, step } of figure.controls) {
      if (min === undefined) continue;
      const steps = Math.round((state[name] - min) / step);
      const value = Math.min(max, Math.max(min, min + steps * step));
      state[name] = Number(value.toFixed(6));
    }
    show();
  }

  figure.controls.forEach((spec, i) => {
    if (spec.press) {
      input(i).addEventListener("click", () => set(spec.press(state)));
    } else {
      input(i).addEventListener("input", ({ target }) => set({
        [spec.name]: spec.check ? target.checked : Number(target.value),
      }));
    }
  });

  let pulled = null, drawing = 0;
  const mark = ({ target }) => target.closest("[data-mark]")?.dataset.mark;
  const pull = (event) => {
    const { left, top } = picture.querySelectorAll("svg")[drawing]
      .getBoundingClientRect();
    set(figure.drag(
      state, event.clientX - left, event.clientY - top, pulled, width));
  };
  picture.addEventListener("pointerdown", (event) => {
    if (!figure.drag || event.button || !event.isPrimary
      || !event.target.closest("[data-drag]")) return;
    pulled = mark(event) ?? "";
    drawing = [...picture.querySelectorAll("svg")].indexOf(
      event.target.closest("svg"));
    picture.setPointerCapture(event.pointerId);
    event.preventDefault();
    pull(event);
  });
  // A finger on what can be pulled does not scroll the page. (`touch-action`
  // says so too, but is not heard inside an svg.)
  picture.addEventListener("touchstart", (event) => {
    if (event.target.closest("[data-drag]")) event.preventDefault();
  }, { passive: false });
  picture.addEventListener("pointermove", (event) => {
    if (pulled !== null && event.isPrimary) pull(event);
  });
  picture.addEventListener("lostpointercapture", () => { pulled = null; });
  picture.addEventListener("click", (event) => {
    if (figure.pick && mark(event) !== undefined) {
      set(figure.pick(state, mark(event)));
    }
  });

  show();
  new ResizeObserver(() => {
    if (Math.min(560, picture.clientWidth) !== width) show();
  }).observe(picture);
  // The static picture of the same cell is for print and for where no script
  // runs. Its place differs: the book, JupyterLab, Colab.
  host.closest(".cell_output, .jp-OutputArea, #output-area")
    ?.classList.add("explored");
  host.insertAdjacentHTML("beforeend", `<style>@media screen {
    .explored img { display: none; } }</style>`);
}

// A figure starts once it has been laid out: until then it has no width, and
// to ask for one would lay it out between two others.
function define(kind, make) {
  for (const host of document.querySelectorAll(`[data-explore="${kind}"]`)) {
    if (host.laidOut) continue;  // found by the script of another figure
    host.laidOut = new ResizeObserver(() => {
      host.laidOut.disconnect();
      setTimeout(start, 0, host, make);
    });
    host.laidOut.observe(host);
  }
}
