// What may be wrong with a page that is shown. Each function returns a list of
// sentences, empty where all is well; conftest.py puts them into every page.

function isShown(element) {
  return element.checkVisibility() && element.getClientRects().length > 0;
}

function shown(selector) {
  return [...document.querySelectorAll(selector)].filter(isShown);
}

function naming(element) {
  const words = element.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
  const names = [...element.classList].map((name) => `.${name}`).join("");
  return `<${element.localName}${names}> ${words}`;
}

// The element that lies in a rectangle of the view, in a shadow root.
function lyingIn({ left, top, right, bottom }) {
  const near = (one, other) => Math.abs(one - other) < 1;
  const roots = [...document.querySelectorAll("*")]
    .map((element) => element.shadowRoot).filter(Boolean);
  return roots.flatMap((root) => [...root.querySelectorAll("*")])
    .find((element) => {
      const box = element.getBoundingClientRect();
      return near(Math.max(0, box.left), left)
        && near(Math.max(0, box.top), top)
        && near(Math.min(innerWidth, box.right), right)
        && near(Math.min(innerHeight, box.bottom), bottom);
    });
}

// What has moved, and how. The browser tells no node of a shadow root, and
// none that is gone.
function moving({ node, previousRect: from, currentRect: to }) {
  const element = node?.nodeType === Node.TEXT_NODE ? node.parentElement
    : node ?? lyingIn(to);
  const place = ({ x, y, width, height }) =>
    `${Math.round(x)},${Math.round(y)} ${Math.round(width)}×${
      Math.round(height)}`;
  return `${element ? naming(element) : "something"} (${place(from)} → ${
    place(to)})`;
}

// Movements are described when they are told of: later, what moved may be gone.
const shifts = [];
function note(entries) {
  for (const { value, hadRecentInput, sources } of entries) {
    if (!hadRecentInput) shifts.push({ value, what: sources.map(moving) });
  }
}
const watcher = new PerformanceObserver((list) => note(list.getEntries()));
watcher.observe({ type: "layout-shift" });

async function frames(n) {
  for (let i = 0; i < n; i++) await new Promise(requestAnimationFrame);
}

// Scroll down as a reader does, so that all is fetched and laid out; say by
// how much what was already seen has moved (the cumulative layout shift).
async function movementFaults(limit) {
  const page = document.documentElement;
  for (let y = 0; y < page.scrollHeight; y += innerHeight) {
    scrollTo({ top: y, behavior: "instant" });
    await frames(1);
  }
  const pictures = shown("img").filter((picture) => !picture.complete);
  await Promise.allSettled(pictures.map((picture) => picture.decode()));
  await document.fonts.ready;
  await frames(1);
  scrollTo({ top: 0, behavior: "instant" });
  await frames(2);
  note(watcher.takeRecords());
  const total = shifts.reduce((sum, shift) => sum + shift.value, 0);
  if (total < limit) return [];
  const what = new Set(shifts.flatMap((shift) => shift.what));
  return [`moved by ${total.toFixed(4)}: ${[...what].join("; ")}`];
}

function pictureFaults() {
  return shown("img")
    .filter((picture) => !picture.complete || !picture.naturalWidth)
    .map((picture) => `not shown: ${picture.currentSrc || picture.src}`);
}

// In the dark theme, too: a heat map is read by its colours.
function colourFaults() {
  return shown(".cell_output img")
    .filter((figure) => getComputedStyle(figure).filter !== "none")
    .map((figure) => `its colours are changed: ${figure.alt}`);
}

function formulaFaults() {
  const formulas = shown(".katex");
  const faults = [];
  for (const formula of formulas) {
    const { width, height } = formula.getBoundingClientRect();
    if (!width || !height) faults.push(`has no size: ${naming(formula)}`);
    // axe is not asked about the parts of a formula; see test_pages.py.
    const colours = [formula, ...formula.querySelectorAll(".katex-html span")]
      .map((part) => getComputedStyle(part).color)
      .filter((colour) => colour !== "rgba(0, 0, 0, 0)"); // a \phantom
    if (new Set(colours).size > 1) {
      faults.push(`is not of the colour of its text: ${naming(formula)}`);
    }
  }
  const fonts = [...document.fonts].filter((f) => /KaTeX/.test(f.family));
  const loaded = fonts.filter((font) => font.status === "loaded");
  if (formulas.length && !loaded.length) faults.push("no font of KaTeX's");
  for (const font of document.fonts) {
    if (font.status === "error") faults.push(`no font ${font.family}`);
  }
  return faults;
}

// What is wider than its place scrolls there, or is cut off on purpose.
function staysInside(element, edge) {
  for (let box = element; box !== document.body; box = box.parentElement) {
    const { overflowX } = getComputedStyle(box);
    const holds = overflowX !== "visible"
      || box.matches(".sr-only, foreignObject");
    if (holds && box.getBoundingClientRect().right <= edge + 1) return true;
  }
  return false;
}

function widthFaults() {
  const { scrollWidth } = document.documentElement;
  const faults = scrollWidth > innerWidth
    ? [`the page is ${scrollWidth} wide, its window ${innerWidth}`] : [];
  const column = document.querySelector("article, .bd-search-container");
  const edge = column.getBoundingClientRect().right;
  const out = [...column.querySelectorAll("*")].filter((element) =>
    element.getBoundingClientRect().right > edge + 1
    && isShown(element) && !staysInside(element, edge));
  return faults.concat(out.map((e) => `sticks out: ${naming(e)}`));
}

// Code of up to 79 columns is read without scrolling.
function codeFaults() {
  return shown("article pre")
    .filter((code) => code.scrollWidth > code.clientWidth)
    .filter((code) =>
      code.textContent.split("\n").every((line) => line.length <= 79))
    .map((code) => `scrolls: ${naming(code)}`);
}

// The ring around what has the focus: there, and not cut off by a box.
async function focusFaults() {
  const moving = document.getAnimations()
    .filter((motion) => motion instanceof CSSTransition);
  await Promise.allSettled(moving.map((motion) => motion.finished));
  let element = document.activeElement;
  while (element.shadowRoot?.activeElement) {
    element = element.shadowRoot.activeElement;
  }
  if (element === document.body) return ["nothing has the focus"];
  const style = getComputedStyle(element);
  const outlined = style.outlineStyle !== "none"
    && parseFloat(style.outlineWidth);
  if (!outlined && style.boxShadow === "none") {
    return [`shows no focus: ${naming(element)}`];
  }
  const { left, right, top, bottom } = element.getBoundingClientRect();
  if (bottom < 0 || top > innerHeight) {
    return [`not in sight: ${naming(element)}`];
  }
  const far = outlined ? 1 + parseFloat(style.outlineOffset) : 1;
  for (let box = element.parentElement; box; box = box.parentElement) {
    if (getComputedStyle(box).overflow !== "hidden") continue;
    const edge = box.getBoundingClientRect();
    if (left - far < edge.left || right + far > edge.right
      || top - far < edge.top || bottom + far > edge.bottom) {
      return [`its ring is cut off: ${naming(element)}`];
    }
  }
  return [];
}

// Text whose elements have the same names and classes, all the way up, has the
// same colours: one of each look, for axe to judge.
function looks() {
  const seen = new Set();
  const look = (element) => (element === document.body ? ""
    : `${look(element.parentElement)}/${element.localName}`
      + `.${element.getAttribute("class")}.${element.getAttribute("style")}`);
  return shown("body *").filter((element) =>
    [...element.childNodes].some((node) =>
      node.nodeType === Node.TEXT_NODE && node.data.trim())
    && !element.closest(".katex-html")
    && !seen.has(look(element)) && seen.add(look(element)));
}

Object.assign(globalThis, {
  frames, movementFaults, pictureFaults, colourFaults, formulaFaults,
  widthFaults, codeFaults, focusFaults, looks,
});
