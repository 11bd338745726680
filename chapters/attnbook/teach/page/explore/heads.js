// Where a word of a text looks, by every head of a model.
//
// data.words    the text
// data.heads    the heads' names, the same in every block
// data.weights  (blocks, heads, words): the lower triangle of each map, row
//               by row, in ten-thousandths
// state.word, state.block, state.head  what is looked at, as numbers

define("heads", ({ words, heads, weights }) => {
  const blocks = range(weights.length).map((n) => `block ${n}`);
  const controls = [
    { name: "word", label: "Word",
      options: words.map((word, n) => `${n} ${word}`) },
    { name: "block", label: "Block", options: blocks },
    { name: "head", label: "Head", options: heads },
  ].filter(({ options }) => options.length > 1);

  const row = (word, block, head) => weights[block][head].slice(
    word * (word + 1) / 2, (word + 1) * (word + 2) / 2).map((w) => w / 1e4);
  const highest = (row) => row.indexOf(Math.max(...row));

  const values = ({ word, block, head }) => {
    const found = row(word, block, head);
    return { weights: found, most: highest(found) };
  };

  // The text, a line a sentence; the darker a word, the more is it heard.
  const LOOKS = `<style>
    .text span { display: inline-block; min-width: 1.75rem; padding: 0.1rem
      0.3rem; text-align: center; line-height: 1.6; border-radius: 0.25rem;
      border: 2px solid transparent; box-sizing: border-box; }
    .text .from { border-color: currentColor; font-weight: 600; }
    .text .later { opacity: 0.7; font-style: italic; }
    .top { min-height: 14rem; }  /* what is below stays for every word */
    .all { display: flex; flex-wrap: wrap; gap: 0 1rem; }
    .all table { margin-inline: 0; }
    .all tr[data-mark]:hover, .now { background: #0072b233; }
    .all :is(td, th) { text-align: left; padding-inline: 0.3rem; }
    td, th { white-space: nowrap; }
  </style>`;
  const text = (from, found) => words.map((word, n) => `<span data-mark="${n}"
    class="${n === from ? "from" : n > from ? "later" : ""}"
    style="${shade(found[n] ?? 0)}">${esc(word)}</span>${
    word === "." ? "<br>" : ""}`).join("");

  // A bar for each word; all words together take the same room everywhere.
  const strip = (found, width) => svg(width, 18, found.map((w, n) =>
    `<rect x="${px(n * width / words.length)}" y="${px(17 - 16 * w)}"
      width="${px(0.8 * width / words.length)}" height="${px(1 + 16 * w)}"
      fill="${BLUE}"/>`).join(""));

  const block = (n, state, width) => `<table><caption>${
    blocks.length > 1 ? `Block ${n}, e` : "E"}very head</caption><tr>${
    ["head", "weights", "most on"].map((c) =>
      `<th scope="col">${c}</th>`).join("")}<td></td></tr>${
    heads.map((name, h) => {
      const found = row(state.word, n, h), most = highest(found);
      return `<tr data-mark="${n} ${h}" class="${
        n === state.block && h === state.head ? "now" : ""}">
        <th scope="row">${esc(name)}</th><td>${strip(found, width)}</td>
        <td>${esc(words[most])}</td><td>${num(found[most])}</td></tr>`;
    }).join("")}</table>`;

  function draw(state, { weights: found }, width) {
    const order = found.map((w, n) => [n, w]).sort((a, b) => b[1] - a[1]);
    const [top, rest] = [order.slice(0, 5), order.slice(5)];
    const left = sum(rest.map(([, w]) => w));
    return `${LOOKS}<div class="text">${text(state.word, found)}</div>
      <div class="top">`
      + bars(`Weights of ${name(state.word)}, ${place(state)}`, [
        ...top.map(([n, w]) => [`${n} ${words[n]}`, w, num(w)]),
        ...(rest.length ? [[`${rest.length} more`, left, num(left)]] : []),
      ]) + `</div>`
      + `<div class="all">${blocks.map((_, n) => block(
        n, state, Math.min(160, width - 205))).join("")}</div>`;
  }

  const name = (n) => `“${words[n]}” (word ${n})`;
  const place = ({ block, head }) => blocks.length > 1
    ? `${blocks[block]}, ${heads[head]}` : heads[head];

  return {
    controls, values, draw,
    pick: (state, mark) => {
      const [first, head] = mark.split(" ").map(Number);
      return head === undefined ? { word: first } : { block: first, head };
    },
    say: (state, { weights: found, most }) => {
      const first = place(state);
      return `${first[0].toUpperCase()}${first.slice(1)}: ${
        name(state.word)} puts ${num(found[most])} of its weight on ${
        most === state.word ? "itself" : name(most)}${
        state.word === 0 ? "; it sees nothing else"
          : ` and ${num(1 - found[most])} on the other ${
            state.word === 1 ? "word" : `${state.word} words`
          } that it sees`}.`;
    },
  };
});
