// Where each word of a sentence looks, by the heads of an encoder: a model
// whose words see the whole sentence, before and after them.
//
// data.texts    the sentences: their words, and weights (blocks, heads):
//               for each head all rows of its map, in hundredths
// data.first, data.second   the words of which the reader chooses two; the
//               first texts are the sentence with each pair of them
// data.titles   the other texts, as a reader chooses them
// data.blocks   the numbers of the stored blocks
// state.text    0 for the reader's sentence, else which of the others
// state.first, state.second, state.word, state.block, state.head
//               what is chosen, each as a number

define("encoder", ({ texts, first, second, titles, blocks }) => {
  const heads = range(texts[0].weights[0].length);
  const pairs = first.length * second.length;
  const chosen = (state) => texts[state.text === 0
    ? state.first * second.length + state.second
    : pairs + state.text - 1];
  const most = Math.max(...texts.map(({ words }) => words.length));
  const at = (state) => Math.min(state.word, chosen(state).words.length - 1);

  const controls = [
    { name: "text", label: "Sentence",
      options: ["The … left the … bank (your words)", ...titles] },
    { name: "first", label: "Your first word", options: first },
    { name: "second", label: "Your second word", options: second },
    { name: "word", label: "Looks from", min: 0, max: most - 1, step: 1,
      text: (_, state) => chosen(state).words[at(state)] },
    { name: "block", label: "Block", options: blocks.map(String) },
    { name: "head", label: "Head", options: heads.map(String) },
  ];

  const row = (state, head = state.head) => {
    const { words, weights } = chosen(state), T = words.length;
    return weights[state.block][head].slice(
      at(state) * T, (at(state) + 1) * T).map((w) => w / 100);
  };
  const highest = (found) => found.indexOf(Math.max(...found));

  const values = (state) => {
    const found = row(state);
    return { weights: found, most: highest(found) };
  };

  // The darker a word, the more is it heard.
  const LOOKS = `<style>
    .text span { display: inline-block; min-width: 1.75rem; padding: 0.1rem
      0.3rem; text-align: center; line-height: 1.6; border-radius: 0.25rem;
      border: 2px solid transparent; box-sizing: border-box; }
    .text .from { border-color: currentColor; font-weight: 600; }
    tr[data-mark]:hover, .now { background: #0072b233; }
    .heads :is(td, th) { text-align: left; white-space: nowrap; }
  </style>`;

  function draw(state, { weights: found }, width) {
    const { words } = chosen(state), from = at(state);
    const text = words.map((word, n) => `<span data-mark="w ${n}"
      class="${n === from ? "from" : ""}" style="${shade(found[n])}">${
      esc(word)}</span>`).join(" ");
    const strip = (weights) => svg(Math.min(220, width - 190), 18,
      weights.map((w, n) => {
        const each = Math.min(220, width - 190) / weights.length;
        return `<rect x="${px(n * each)}" y="${px(17 - 16 * w)}"
          width="${px(0.8 * each)}" height="${px(1 + 16 * w)}"
          fill="${BLUE}"/>`;
      }).join(""));
    const rows = heads.map((head) => {
      const weights = row(state, head), top = highest(weights);
      return `<tr data-mark="h ${head}" class="${
        head === state.head ? "now" : ""}"><th scope="row">${head}</th>
        <td>${strip(weights)}</td><td>${esc(words[top])}</td>
        <td>${num(weights[top])}</td></tr>`;
    }).join("");
    return `${LOOKS}<div class="text">${text}</div>
      <table class="heads"><caption>All heads of block ${
      blocks[state.block]}, from “${esc(words[from])}”</caption><tr>
      <th scope="col">head</th><th scope="col">weights</th>
      <th scope="col">most on</th><td></td></tr>${rows}</table>`;
  }

  return {
    controls, values, draw,
    pick: (_, mark) => {
      const [kind, n] = mark.split(" ");
      return kind === "w" ? { word: Number(n) } : { head: Number(n) };
    },
    say: (state, { weights: found, most: top }) => {
      const { words } = chosen(state), from = at(state);
      return `Block ${blocks[state.block]}, head ${state.head}: “${
        words[from]}” gives ${num(found[top])} of its weight to ${
        top === from ? "itself" : `“${words[top]}”`}, and ${
        num(1 - found[top])} to the other ${words.length - 1} words.`;
    },
  };
});
