// Masks put together over one padded text, and one row of them in the four
// conventions.
//
// data.words    a text as long as the tensor is wide; padding takes the
//               place of its last words
// state.causal  whether later keys are hidden
// state.left, state.right  columns of padding
// state.window  keys that many back or more are hidden; at the full width
//               it hides nothing
// state.row     the query whose row is written out

define("masks", ({ words }) => {
  const size = words.length, places = range(size);
  const padding = (name) => ({
    name, label: `Padding ${name}`, min: 0, max: 3, step: 1,
    text: String });
  const isReal = ({ left, right }, j) => j >= left && j < size - right;
  const nameOf = (state, j) =>
    isReal(state, j) ? words[j - state.left] : "pad";

  const controls = [
    { name: "causal", label: "Causal", check: true },
    padding("left"),
    padding("right"),
    { name: "window", label: "Window", min: 1, max: size, step: 1,
      text: (window) => (window === size ? "off" : String(window)) },
    { name: "row", label: "Query", min: 0, max: size - 1, step: 1,
      text: (row, state) => `${row} ${nameOf(state, row)}` },
  ];

  function values(state) {
    const { causal, window, row } = state;
    const real = places.map((j) => isReal(state, j));
    const mask = places.map((i) => real.map(
      (here, j) => here && (!causal || j <= i) && i - j < window));
    const keys = mask.map((line) => sum(line.map(Number)));
    const write = (list, yes, no) => list.map((x) => (x ? yes : no));
    return {
      mask: mask.map((line) => line.map(Number)),
      keys, allowed: sum(keys),
      sdpa: write(mask[row], "True", "False"),
      multihead: write(mask[row], "False", "True"),
      additive: write(mask[row], "0", "−∞"),
      transformers: write(real, "1", "0"),
    };
  }

  // The square: a tick in a filled cell is an allowed key.
  function square(state, { mask, keys }, width) {
    const cell = Math.min(28, Math.floor((width - 104) / size));
    const x = (j) => 60 + j * cell, y = (i) => 50 + i * cell;
    const frame = (i, colour, more = "") => `<rect x="58" y="${y(i)}"
      width="${size * cell + 4}" height="${cell}" fill="none"
      stroke="${colour}" stroke-width="2" ${more}/>`;
    return svg(width, y(size) + 4,
      label(52, 44, "query", 'text-anchor="end"')
      + label(x(size) + 8, 44, "keys")
      + places.map((i) => {
        const name = nameOf(state, i), middle = y(i) + cell / 2 + 4;
        return label(0, 0, name, `transform="translate(${x(i) + cell / 2 + 3},
            44) rotate(-60)"`)
          + label(52, middle, `${i} ${name}`, 'text-anchor="end"')
          + mask[i].map((allowed, j) => `<rect x="${x(j) + 1}"
            y="${y(i) + 1}" width="${cell - 2}" height="${cell - 2}"
            ${allowed ? `fill="${BLUE}"` : 'fill="none" stroke="currentColor"'
              + ' stroke-opacity="0.3"'}/>${allowed
              ? label(x(j) + cell / 2, middle, "✓",
                'text-anchor="middle" fill="#fff"') : ""}`).join("")
          + label(x(size) + 8, middle, keys[i] || "none",
            keys[i] ? "" : 'font-weight="bold"')
          + (keys[i] ? "" : frame(i, ORANGE, 'stroke-dasharray="5 4"'));
      }).join("")
      + frame(state.row, "currentColor")
      + places.map((i) => `<rect x="0" y="${y(i)}" width="${width}"
        height="${cell}" opacity="0" data-mark="${i}"/>`).join(""));
  }

  function draw(state, found, width) {
    const { row } = state;
    const marked = (text, on) => [text, on ? shade(0.5) : ""];
    const written = table(
      `Query ${row}, “${nameOf(state, row)}”, in four conventions; the last
        says padding only`,
      ["", "SDPA", "multi\u00adhead", "ad\u00additive", "trans\u00adformers"],
      places.map((j) => [nameOf(state, j),
        ...[found.sdpa, found.multihead, found.additive].map(
          (list) => marked(list[j], found.mask[row][j])),
        found.transformers[j]]));
    return `<style>th, td { padding-inline: 0.3rem; }</style>
      <div style="display: flex; flex-wrap: wrap; gap: 0 1rem;
      justify-content: center">${square(state, found, Math.min(width, 310))}
      <div style="width: 18rem; max-width: 100%">${written}</div></div>`;
  }

  return {
    controls, values, draw,
    // A resting pointer may enter its mark again: then nothing changes.
    pick: (state, mark) => ({ row: Number(mark) }),
    say: (state, { mask, keys, allowed }) => {
      const { row } = state;
      const seen = places.filter((j) => mask[row][j]);
      const empty = places.filter((i) => !keys[i]);
      const list = seen.map((j) => nameOf(state, j)).join(", ");
      return `${state.causal ? "Causal" : "Not causal"}, padding ${state.left}`
        + ` left and ${state.right} right, ${state.window < size
          ? `a window of ${state.window}` : "no window"}: ${allowed} of ${
          size * size} pairs are allowed. Query ${row}, “${
        nameOf(state, row)}”, may attend to ${seen.length} of ${size} keys${
        list && `: ${list}`}. ` + (empty.length === 0
        ? "No query is left without keys."
        : `Without any key: ${empty.length > 1 ? "queries" : "query"} ${
          empty.join(", ")}. Softmax would be 0/0 there; the book’s rule is `
          + "weights of 0.");
    },
  };
});
