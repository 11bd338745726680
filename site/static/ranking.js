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
  const PART_TENTHS = 8;
  const SHORTEST_PART = 3;
  const MOST_PARTS = 4;
  const LONGEST_TO_CUT = 40;
  const ALIKE_TENTHS = 5;
  const SHARED_TENTHS = 6;

  function stem(word) {
    if (word.length <= 3 || /\d/.test(word)) return word;
    word = word
      .replace(/is(e|es|ed|ing|ation|ations|er|ers)$/, "iz$1")
      .replace(/ie[sd]$/, "y")
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
    return [...found, ...phrasesIn(words, known).map((key) => known.get(key))];
  }

  function phrasesIn(words, known) {
    const found = [];
    let longest = 0;
    for (const key of known.keys()) {
      longest = Math.max(longest, key.split(" ").length);
    }
    for (let start = 0; start < words.length; start++) {
      for (let length = longest; length > 0; length--) {
        const key = words.slice(start, start + length).join(" ");
        if (start + length <= words.length && known.has(key)) {
          found.push(key);
          break;
        }
      }
    }
    return found;
  }

  // An index as it is stored, with maps: a word may be called "constructor".
  function open(stored) {
    return {
      covered: stored.covered ?? 10,
      phrases: new Map(Object.entries(stored.phrases)),
      terms: new Map(Object.entries(stored.terms)),
    };
  }

  function threes(word) {
    const marked = `^${word}$`;
    const found = new Set();
    for (let at = 0; at + 3 <= marked.length; at++) {
      found.add(marked.slice(at, at + 3));
    }
    return found;
  }

  function isAlike(word, other) {
    const [ours, theirs] = [threes(word), threes(other)];
    const shared = [...ours].filter((three) => theirs.has(three)).length;
    return 20 * shared >= SHARED_TENTHS * (ours.size + theirs.size);
  }

  function joined(asked, listed) {
    return asked
      .filter((term) => term.includes(" "))
      .map((term) => term.replaceAll(" ", ""))
      .filter((word) => listed.has(word));
  }

  function parts(listed, typed, most = MOST_PARTS) {
    let found = [];
    const letters = typed.length;
    if (letters < SHORTEST_PART || letters > LONGEST_TO_CUT) return found;
    for (let at = letters - SHORTEST_PART; at >= SHORTEST_PART; at--) {
      const head = stem(typed.slice(0, at));
      const tail = typed.slice(at);
      if (!listed.has(head)) continue;
      if (listed.has(tail)) return [head, tail];
      const further = most > 2 ? parts(listed, tail, most - 1) : [];
      if (further.length && !found.length) found = [head, ...further];
    }
    return found;
  }

  function near(listed, typed) {
    const words = [...listed.keys()].filter((word) => !word.includes(" "));
    const longer = words.filter((word) => word.startsWith(typed));
    const inside = longer.length ? [] : parts(listed, typed);
    if (inside.length) {
      const sums = new Map();
      for (const word of inside) {
        const pairs = listed.get(word);
        for (let n = 0; n < pairs.length; n += 2) {
          const part = Math.floor((pairs[n + 1] * PART_TENTHS) / 10);
          sums.set(pairs[n], (sums.get(pairs[n]) || 0) + part);
        }
      }
      return sums;
    }
    const tenths = longer.length ? PREFIX_TENTHS : ALIKE_TENTHS;
    const alike = longer.length
      ? longer
      : words.filter((word) => isAlike(word, typed));
    const best = new Map();
    for (const word of alike) {
      const pairs = listed.get(word);
      for (let n = 0; n < pairs.length; n += 2) {
        const part = Math.floor((pairs[n + 1] * tenths) / 10);
        best.set(pairs[n], Math.max(best.get(pairs[n]) || 0, part));
      }
    }
    return best;
  }

  function rank(index, query) {
    const scores = new Map();
    const known = phrasesIn(stems(query), index.phrases);
    const inside = new Set(
      known.filter((key) => key.includes(" ")).flatMap((key) => key.split(" ")),
    );
    const asked = terms(query, index.phrases);
    asked.push(...joined(asked, index.terms));
    for (const term of new Set(asked)) {
      const tenths = inside.has(term) ? index.covered : 10;
      let best = new Map();
      const listed = index.terms.get(term) || [];
      for (let n = 0; n < listed.length; n += 2) {
        best.set(listed[n], listed[n + 1]);
      }
      if (!best.size && term.length >= SHORTEST_PREFIX && !term.includes(" ")) {
        best = near(index.terms, term);
      }
      for (const [entry, weight] of best) {
        const part = Math.floor((weight * tenths) / 10);
        scores.set(entry, (scores.get(entry) || 0) + part);
      }
    }
    const found = [...scores].filter(([, score]) => score > 0);
    return found.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  }

  return { open, rank, stem, stems, terms };
})();

if (typeof module !== "undefined") module.exports = ranking;
