// What the residual stream is made of, block by block, for several designs.
//
// data.designs  name → {written, below, newest}: of the stream at each
//               height, means over its numbers: the products with each of
//               its parts (the embedding, and what each block wrote), the
//               product with the stream one block below, and the square of
//               the newest part; the last two are 0 at the bottom
// state.block   how many blocks the stream has passed

define("residual", ({ designs }) => {
  const names = Object.keys(designs);
  const top = designs[names[0]].written.length - 1;
  const COLOURS = [BLUE, ORANGE, GREEN];

  // The stream is the sum of its parts: so are its products with them.
  const size = (name, n) => Math.sqrt(sum(designs[name].written[n]));

  const controls = [
    { name: "block", label: "After block", min: 0, max: top, step: 1,
      text: (n) => `${n} of ${top}` },
    { label: "Back", press: ({ block }) => ({ block: block - 1 }) },
    { label: "Next", press: ({ block }) => ({ block: block + 1 }) },
  ];

  const values = ({ block: n }) => Object.fromEntries(names.map((name) => {
    const { written, below, newest } = designs[name];
    const square = sum(written[n]);
    return [name, {
      size: Math.sqrt(square),
      shares: written[n].map((product) => product / square),
      added: Math.sqrt(newest[n]),
      cosine: n ? below[n] / size(name, n) / size(name, n - 1) : 1,
    }];
  }));

  // A picture of a number at each height; left and right edge are shared.
  const LEFT = 36;
  const slot = (width) => (width - LEFT) / (top + 1);
  const middle = (n, width) => LEFT + (n + 0.5) * slot(width);
  const panel = (title, height, width, ends, body, under) => svg(
    width, height + 42, label(0, 12, title, 'font-weight="600"')
    + label(LEFT - 5, 30, ends[1], 'text-anchor="end"')
    + label(LEFT - 5, height + 24, ends[0], 'text-anchor="end"')
    + path([[LEFT, height + 22], [width, height + 22]], "currentColor",
      'opacity="0.6"')
    + body((share) => 22 + height * (1 - share))
    + under.map(([n, text, anchor]) => label(
      middle(n, width) + ({ start: -4, end: 4 }[anchor] ?? 0), height + 37,
      text, `text-anchor="${anchor}"`)).join("")
    + `<rect x="${LEFT}" y="18" width="${px(width - LEFT)}"
      height="${height + 8}" opacity="0" data-mark="block" data-drag/>`);

  // All the bars are there at any height, for a finger must not lose what it
  // holds when another number of them is drawn.
  const parts = (name, colour, { shares }, n, width) => panel(
    `${name}: shares of the stream`, 90, width, [0, 1],
    (y) => range(top + 1).map((i) => {
      const share = shares[i] ?? 0, tall = Math.abs(y(share) - y(0));
      return `<rect x="${px(middle(i, width) - 0.4 * slot(width))}"
        y="${px(Math.min(y(share), y(0)))}" width="${px(0.8 * slot(width))}"
        height="${i > n ? 0 : px(Math.max(1, tall))}" fill="${colour}"/>`;
    }).join(""),
    // An arrow under the bar that is meant; together where both find room.
    [[0, "↑ embedding", "start"],
      [n, n * slot(width) > 145 ? `block ${n} ↑` : "", "end"]]);

  const most = Math.max(...names.flatMap(
    (name) => range(top + 1).map((n) => size(name, n))));
  const sizes = (n, width) => panel(
    "size of the stream", 60, width, [0, num(most, 1)],
    (y) => path([[middle(n, width), y(1)], [middle(n, width), y(0)]],
      "currentColor", 'opacity="0.6" stroke-dasharray="2 3"')
      + names.map((name, i) => path(range(top + 1).map(
        (at) => [middle(at, width), y(size(name, at) / most)]), COLOURS[i],
      i ? 'stroke-dasharray="6 3"' : "")
      + label(width, y(size(name, top) / most) + (i ? -6 : 20), name,
        'text-anchor="end"')).join(""),
    [[0, "0", "middle"], [top, top, "end"]]);

  const draw = ({ block: n }, found, width) =>
    names.map((name, i) => parts(name, COLOURS[i], found[name], n, width))
      .join("") + sizes(n, width)
    + table(n ? `After block ${n}` : "Below the first block", ["", ...names], [
      ["size of the stream", (it) => it.size],
      ["size of what the block added", (it) => n ? it.added : null],
      ["cosine with the stream below it", (it) => n ? it.cosine : null],
      ["share of the block", (it) => n ? it.shares[n] : null],
      ["share of the embedding", (it) => it.shares[0]],
    ].map(([text, of]) => [text, ...names.map((name) => {
      const number = of(found[name]);
      return number === null ? "–" : num(number);
    })]));

  return {
    controls, values, draw,
    drag: (state, x, y, mark, width) => (
      { block: (x - LEFT) / slot(width) - 0.5 }),
    say: ({ block: n }, found) => `${
      n ? `After block ${n}` : "Below the first block"}, ${
      names.map((name) => `the embedding’s share of the ${name} stream is ${
        num(found[name].shares[0])}, and the stream’s size ${
        num(found[name].size)}`).join("; ")}.`,
  };
});
