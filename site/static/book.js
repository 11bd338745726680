// A page opened at its top lays out what the first view shows, and the sections
// below once a reader scrolls, one at a time, so that it answers in between. The
// first touch or key gets the rest at once. (See data-first-view in book.css.)
const page = document.documentElement.dataset;
const far = [...document.querySelectorAll(".bd-article section section")];

function layOutAll() {
  delete page.firstView;
}

function layOutNext() {
  const section = far.shift();
  if (!section || !("firstView" in page)) return layOutAll();
  section.classList.add("laid-out");
  (window.requestIdleCallback ?? setTimeout)(layOutNext);
}

addEventListener("scroll", layOutNext, { once: true, passive: true });
addEventListener("pointerdown", layOutAll, { capture: true, once: true });
addEventListener("keydown", layOutAll, { capture: true, once: true });

// So do the scripts of the buttons that copy code, in their order.
function runLate() {
  for (const late of document.querySelectorAll("script[type='text/plain']")) {
    late.replaceWith(Object.assign(document.createElement("script"),
      { src: late.src, async: false }));
  }
}

for (const move of ["scroll", "pointermove", "pointerdown", "keydown"]) {
  addEventListener(move, runLate, { once: true });
}

// What is wider than its box scrolls; let the keyboard reach it. A box is
// asked once it has been laid out.
const BOXES = "pre, .cell_output > .output, div.math > .katex-display, "
  + ".pst-scrollable-table-container";

const boxes = new ResizeObserver((entries) => {
  const found = entries.map(({ target }) => [target,
    target.scrollWidth > target.clientWidth]);
  for (const [box, scrolls] of found) {
    if (scrolls) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
});

function observeBoxes() {
  boxes.disconnect();
  for (const box of document.querySelectorAll(BOXES)) boxes.observe(box);
}

addEventListener("load", observeBoxes);
document.fonts.addEventListener("loadingdone", observeBoxes);

// An address may name what is folded, or lies in a fold: that is opened, also
// for a link that is followed again.
function openNamed() {
  const named = document.querySelector(":target");
  let fold = named?.querySelector(":scope > details") ?? named;
  while ((fold = fold?.closest("details:not([open])"))) {
    fold.open = true;
    named.scrollIntoView();
  }
}

for (const move of ["load", "hashchange", "popstate"]) {
  addEventListener(move, openNamed);
}

// The theme takes the focus from a button that was pressed, so that its
// tooltip goes. Who came by keyboard would have to start from the top again.
for (const button of document.querySelectorAll("[data-bs-toggle=tooltip]")) {
  const { blur } = button;
  button.blur = () => {
    if (!button.matches(":focus-visible")) blur.call(button);
  };
}

// Sphinx begins the extract of a page that it has found with the words of the
// page's buttons, and looks in it for the stem of the word that was searched
// for, which need not be in the text: "rotari", where "rotary" stands. It looks
// up "constructor" in lists that are objects, which all have one. A page is
// listed, and counted, once for its title, once for its text and once for each
// of its terms. And of pages that fit as well, the earlier one shall come first.
function mendSearch() {
  const { htmlToText, makeSearchSummary, setIndex, _performSearch } = Search;
  Search.htmlToText = (page, anchor) => {
    const article = new DOMParser().parseFromString(page, "text/html")
      .querySelector("article");
    // The title is the link above; a formula's MathML says it once more.
    const again = article.querySelectorAll("h1, .katex-mathml");
    for (const element of again) element.remove();
    return htmlToText(`<div role="main">${article.outerHTML}</div>`, anchor);
  };
  Search.makeSearchSummary = (page, stems, anchor) =>
    makeSearchSummary(page, [...stems].map((s) => s.replace(/i$/, "")), anchor);
  Search.setIndex = (index) => {
    const { hasOwnProperty } = Object.prototype;
    const own = { __proto__: null, hasOwnProperty };
    Object.setPrototypeOf(index.terms, own);
    Object.setPrototypeOf(index.titleterms, own);
    setIndex(index);
  };
  Search._performSearch = (...asked) => {
    const listed = new Map(); // by page; of several, the last fits best
    for (const result of _performSearch(...asked)) {
      listed.delete(result[0]);
      listed.set(result[0], result);
    }
    return [...listed.values()];
  };
  Scorer.score = ([page, , , , score]) => score - (parseInt(page) || 99) / 1e4;
}

// At once after Sphinx's script, which begins to search as soon as it is read.
document.querySelector("script[src*=searchtools]")
  ?.addEventListener("load", mendSearch);

// A page that is read from a file may not read another for its extract.
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}

// Paper is light, whatever the screen is.
let screenTheme;
addEventListener("beforeprint", () => {
  screenTheme = page.theme;
  page.theme = "light";
});
addEventListener("afterprint", () => { page.theme = screenTheme; });

// The town's model, 290 kB, comes when a reader comes near a place where it
// answers, and not before the page itself is there.
const towns = new IntersectionObserver((places) => {
  if (!places.some((place) => place.isIntersecting)) return;
  towns.disconnect();
  document.head.append(Object.assign(document.createElement("script"), {
    src: `${page.content_root}_static/town.js`,
  }));
}, { rootMargin: "50%" });

addEventListener("load", () => {
  const places = document.querySelectorAll("[data-town]");
  for (const place of places) towns.observe(place);
});
