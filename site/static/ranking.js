"use strict";
// Which of some entries fit words that somebody typed. This is the room
// attnbook/teach/page/ranking.py once more, which weighs the words and says
// why; a test holds that the two give the same order.

const ranking = (() => {
  const STOPS = new Set(
    ("a an and are as at be been but by can do does doing for from get gets " +
      "give gives got had has have having how i if in into is it its just " +
      "like me my no of on one or our so some such than that the their them " +
      "then there these they this to too up was we were what when where " +
      "which while who why will with would you your s t m").split(" "),
  );
  const PREFIX_TENTHS = 7;
  const SHORTEST_PREFIX = 4;

  function stem(word) {
    if (word.length <= 3 || /\d/.test(word)) return word;
    word = word
      .replace(/is(e|es|ed|ing|ation|ations|er|ers)$/, "iz$1")
      .replace(/ies$/, "y")
      .replace(/(s|x|z|ch|sh)es$/, "$1")
      .replace(/([^sui])s$/, "$1");
    if (word.length > 5) word = word.replace(/(ation|ing|ion|ed|ly)$/, "");
    else if (word.length > 4) word = word.replace(/ed$/, "");
    if (word.length > 4) word = word.replace(/(at)?e$/, "");
    if (word.length > 5) word = word.replace(/at$/, "");
    return word.replace(/([b-df-hj-np-tv-z])\1$/, "$1");
  }

  function stems(text) {
    const plain = text.normalize("NFKD").replace(/[\u0300-\u036f]/g, "");
    const words = plain.toLowerCase().match(/[a-z0-9]+/g) || [];
    return words.filter((word) => !STOPS.has(word)).map(stem);
  }

  function terms(text, known) {
    const words = stems(text);
    const found = [...words];
    for (let n = 1; n < words.length; n++) {
      found.push(`${words[n - 1]} ${words[n]}`);
    }
    let longest = 0;
    for (const key of known.keys()) {
      longest = Math.max(longest, key.split(" ").length);
    }
    for (let start = 0; start < words.length; start++) {
      for (let length = longest; length > 0; length--) {
        const key = words.slice(start, start + length).join(" ");
        if (start + length <= words.length && known.has(key)) {
          found.push(known.get(key));
          break;
        }
      }
    }
    return found;
  }

  // An index as it is stored, with maps: a word may be called "constructor".
  function open(stored) {
    return {
      phrases: new Map(Object.entries(stored.phrases)),
      terms: new Map(Object.entries(stored.terms)),
    };
  }

  function rank(index, query) {
    const scores = new Map();
    for (const term of new Set(terms(query, index.phrases))) {
      const best = new Map();
      const listed = index.terms.get(term) || [];
      for (let n = 0; n < listed.length; n += 2) {
        best.set(listed[n], listed[n + 1]);
      }
      if (!best.size && term.length >= SHORTEST_PREFIX && !term.includes(" ")) {
        for (const [longer, pairs] of index.terms) {
          if (!longer.startsWith(term) || longer.includes(" ")) continue;
          for (let n = 0; n < pairs.length; n += 2) {
            const part = Math.floor((pairs[n + 1] * PREFIX_TENTHS) / 10);
            best.set(pairs[n], Math.max(best.get(pairs[n]) || 0, part));
          }
        }
      }
      for (const [entry, weight] of best) {
        scores.set(entry, (scores.get(entry) || 0) + weight);
      }
    }
    return [...scores].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  }

  return { open, rank, stem, stems, terms };
})();

if (typeof module !== "undefined") module.exports = ranking;
