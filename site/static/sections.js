"use strict";
// The search page's list of sections: above the pages that Sphinx finds come
// the sections and the glossary's entries that fit best, by ranking.js. An entry
// is followed by links to the sections that explain it. The index is large, so
// it is fetched only when there is something to look for.

(() => {
  const MOST = 8;
  const results = document.getElementById("search-results");
  const words = new URLSearchParams(location.search).get("q") || "";
  if (!results || !words.trim()) return;
  const index = document.createElement("script");
  index.src = new URL("sections-index.js", document.currentScript.src).href;
  index.addEventListener("load", show);
  document.head.append(index);

  function linkTo([page, anchor], text) {
    const link = document.createElement("a");
    link.href = `${page}.html#${anchor}`;
    link.textContent = text;
    return link;
  }

  function show() {
    const { entries } = window.sectionsIndex;
    const found = ranking.rank(ranking.open(window.sectionsIndex), words);
    if (!found.length) return;
    const box = document.createElement("section");
    box.id = "sections-found";
    const title = document.createElement("h2");
    title.textContent = "Sections";
    const list = document.createElement("ol");
    for (const [number] of found.slice(0, MOST)) {
      const [, , name, of, explaining = []] = entries[number];
      const item = document.createElement("li");
      item.append(linkTo(entries[number], name));
      if (of !== name) item.append(`, in ${of}`);
      for (const other of explaining) {
        const [page, , title] = entries[other];
        const link = linkTo(entries[other], title);
        item.append(` → ${Number.parseInt(page, 10)}, `, link);
      }
      list.append(item);
    }
    box.append(title, list);
    results.before(box);
  }
})();
