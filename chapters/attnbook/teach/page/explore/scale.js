// What the scale does to one query's weights and to its gradient.
//
// data.names    the keys' names, one a key
// data.scores   q·k, raw
// data.products k·k of every two keys: the gradient is scale · J K, and its
//               norm follows from J and these
// data.root     √d_k
// state.octave  the scale is 2^octave / √d_k

define("scale", ({ names, scores, products, root }) => {
  const controls = [
    { name: "octave", label: "scale × √d_k", min: -6, max: 6, step: 0.25,
      text: (octave) => num(2 ** octave, octave < 0 ? 3 : 2) },
    { label: "1/√d_k", press: () => ({ octave: 0 }) },
    { label: "Undivided", press: () => ({ octave: Math.log2(root) }) },
  ];

  function values({ octave }) {
    const scale = 2 ** octave / root;
    const weights = softmax(scores.map((s) => s * scale));
    const entropy = -sum(weights.map((a) => (a > 0 ? a * Math.log(a) : 0)));
    const J = weights.map((a, i) => weights.map(
      (b, j) => (i === j ? a : 0) - a * b));
    // |J K|² is the trace of J (K Kᵀ) Jᵀ.
    const squared = sum(J.map((row) => dot(row, products.map(
      (line) => dot(line, row)))));
    return { weights, heard: Math.exp(entropy),
      gradient: scale * Math.sqrt(Math.max(0, squared)) };
  }

  // The gradient at every scale, with a dot at the reader's.
  const octaves = range(97).map((n) => n / 8 - 6);
  const curve = octaves.map((octave) => values({ octave }).gradient);
  const top = Math.max(...curve);

  function draw({ octave }, { weights, gradient }, width) {
    const place = (at, height) => [
      70 + (width - 100) * (at + 6) / 12, 120 - 100 * height / top];
    const [x, y] = place(octave, gradient);
    const marks = [
      [0, "1/√d_k", "end"], [Math.log2(root), "undivided", "start"]];
    return bars("Weights", names.map(
      (name, i) => [name, weights[i], num(weights[i])]))
      + svg(width, 160,
        marks.map(([at, text, anchor]) => path(
          [[place(at, 0)[0], 18], [place(at, 0)[0], 120]], "currentColor",
          'opacity="0.5" stroke-dasharray="3 3"')
          + label(place(at, 0)[0], 12, text,
            `text-anchor="${anchor}"`)).join("")
        + path([place(-6, 0), place(6, 0)], "currentColor")
        + path(octaves.map((at, i) => place(at, curve[i])), BLUE)
        + `<circle cx="${px(x)}" cy="${px(y)}" r="6" fill="${ORANGE}"/>`
        + `<rect x="60" y="18" width="${width - 80}" height="102"
          opacity="0" data-mark="scale" data-drag/>`
        + [-6, -3, 0, 3, 6].map((at) => label(place(at, 0)[0], 136,
          2 ** at < 1 ? `1/${2 ** -at}` : 2 ** at,
          'text-anchor="middle"')).join("")
        + label(width / 2 + 20, 155, "scale × √d_k", 'text-anchor="middle"')
        + label(62, 24, num(top, 1), 'text-anchor="end"')
        + label(62, 124, "0", 'text-anchor="end"')
        + label(62, 75, "gradient", 'text-anchor="end"'));
  }

  return {
    controls, values, draw,
    drag: (state, x, y, mark, width) => (
      { octave: 12 * (x - 70) / (width - 100) - 6 }),
    say: ({ octave }, { weights, heard, gradient }) => {
      const most = weights.indexOf(Math.max(...weights));
      return `At ${num(2 ** octave, octave < 0 ? 3 : 2)} / √d_k the largest `
        + `weight is ${num(weights[most])}, on “${names[most]}”; `
        + `${num(heard)} of ${names.length} keys are heard; the gradient has `
        + `norm ${num(gradient, 3)}.`;
    },
  };
});
