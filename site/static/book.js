// A formula wider than the column scrolls; let the keyboard reach it.
function markScrollingFormulas() {
  for (const box of document.querySelectorAll(".katex-display")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

addEventListener("load", markScrollingFormulas);
addEventListener("resize", markScrollingFormulas);
addEventListener("toggle", markScrollingFormulas, true);  // a fold opens

// The theme takes the focus from a button that was pressed, so that its
// tooltip goes. Who came by keyboard would have to start from the top again.
for (const button of document.querySelectorAll("[data-bs-toggle=tooltip]")) {
  button.blur = () => {
    if (!button.matches(":focus-visible")) HTMLElement.prototype.blur.call(button);
  };
}

// Sphinx begins the extract of a page that it has found with the words of the
// page's buttons, and looks in it for the stem of the word that was searched
// for, which need not be in the text: "rotari", where "rotary" stands.
function mendExtracts() {
  const { htmlToText, makeSearchSummary } = Search;
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
}

// At once after Sphinx's script, which begins to search as soon as it is read.
document.querySelector("script[src*=searchtools]")
  ?.addEventListener("load", mendExtracts);

// A page that is read from a file may not read another for its extract.
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}

// Paper is light, whatever the screen is.
let screenTheme;
addEventListener("beforeprint", () => {
  screenTheme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
addEventListener("afterprint", () => {
  document.documentElement.dataset.theme = screenTheme;
});
