"use strict";
// The search box of the page "Something is wrong": what somebody types, and
// the causes that fit it, each a link to its place on the page. The index
// comes once somebody turns to the box, and the order is ranking.js's.

(() => {
  const MOST = 6;
  const place = document.getElementById("clinic");
  if (!place) return;
  place.innerHTML = `
    <form role="search">
      <label for="clinic-words">What do you see?</label>
      <input id="clinic-words" type="search" autocomplete="off"
        spellcheck="false" aria-describedby="clinic-told"
        placeholder="loss halves with padding mask">
      <p id="clinic-told" role="status"></p>
      <ol></ol>
    </form>`;
  place.hidden = false;
  const [input, told, list] = ["input", "p", "ol"].map((tag) =>
    place.querySelector(tag));
  let index;
  let coming;

  function load() {
    coming ||= new Promise((done, failed) => {
      const root = document.documentElement.dataset.content_root || "./";
      document.head.append(Object.assign(document.createElement("script"), {
        src: `${root}_static/clinic-index.js`,
        onload: done,
        onerror: failed,
      }));
    }).then(() => { index = ranking.open(window.clinicIndex); });
    return coming;
  }

  function show() {
    const words = input.value.trim();
    const found = words ? ranking.rank(index, words).slice(0, MOST) : [];
    list.replaceChildren(...found.map(([number]) => {
      const { id, says } = window.clinicIndex.entries[number];
      const link = Object.assign(document.createElement("a"), {
        href: `#${id}`,
        textContent: says,
      });
      const item = document.createElement("li");
      item.append(link);
      return item;
    }));
    if (!words) told.textContent = "";
    else if (found.length) {
      told.textContent =
        `${found.length} causes that fit, the likeliest first:`;
    } else {
      told.textContent = "Nothing fits these words. Try what you see in other " +
        "words, or look through the symptoms below.";
    }
  }

  function search() {
    load().then(show, () => {
      told.textContent =
        "The index could not be loaded. The symptoms below have it all.";
    });
  }

  input.addEventListener("focus", () => { load().catch(() => {}); });
  input.addEventListener("input", search);
  place.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
})();
