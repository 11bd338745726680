// One query among keys in the plane: scores, weights, and the context among
// the values, in the same plane or in one of their own.
//
// data.sets    {name, words, keys, values, hull}: what can be asked; hull are
//              the corners of the smallest convex shape around the values
// data.planes  {title, axes, low, high}: that of the keys, whose ends are
//              the query's, too; that of the values, if it is another
// data.scale   a score is scale · q·k
// data.formula how a score is written
// data.presets [text, x, y]: a button each
// state.x, y   the query; state.set  which of the sets is asked

define("query", ({ sets, planes, scale, formula, presets }) => {
  const score = scale === 1 ? "Score" : "Scaled score";
  const coordinate = (name, axis) => ({ name, label: `query: ${axis}`,
    min: planes[0].low, max: planes[0].high, step: 0.05,
    text: (value) => num(value) });
  const controls = [
    coordinate("x", planes[0].axes[0]),
    coordinate("y", planes[0].axes[1]),
    ...(sets.length > 1 ? [{ name: "set", label: "Sentence",
      options: sets.map((set) => set.name) }] : []),
    ...presets.map(([label, x, y]) => ({ label, press: () => ({ x, y }) })),
  ];

  const average = (weights, points) => [0, 1].map(
    (axis) => dot(weights, points.map((point) => point[axis])));

  function values({ x, y, set }) {
    const scores = sets[set].keys.map((key) => scale * dot(key, [x, y]));
    const weights = softmax(scores);
    return { scores, weights, context: average(weights, sets[set].values) };
  }

  // An axis may run behind a word.
  const HALO = 'style="paint-order: stroke; stroke-width: 4px; '
    + 'stroke: var(--pst-color-background)"';

  // A plane's side in pixels, and where a point of it is drawn.
  const side = (width) => planes.length > 1 && width > 480
    ? width / 2 - 5 : Math.min(width, 360);
  const EDGE = 20;
  const placing = ({ low, high }, size) => ([x, y]) => [
    EDGE + (size - 2 * EDGE) * (x - low) / (high - low),
    size - (size - 2 * EDGE) * (y - low) / (high - low)];

  function axes({ low, high, axes: [across, up] }, points, place) {
    const lines = [[[low, 0], [high, 0]], [[0, low], [0, high]],
      [[1, -0.06], [1, 0.06]], [[-0.06, 1], [0.06, 1]]];
    const text = (point, right, down, words, anchor) => {
      const [x, y] = place(point);
      return label(x + right, y + down, words, `text-anchor="${anchor}"`);
    };
    const taken = ([x, y]) => points.some(([a, b]) => a === x && b === y);
    return lines.map((line) => path(
      line.map(place), "currentColor", 'opacity="0.5"')).join("")
      // No number where a word stands.
      + (taken([1, 0]) ? "" : text([1, 0], 0, 18, "1", "middle"))
      + (taken([0, 1]) ? "" : text([0, 1], -7, 5, "1", "end"))
      + text([high, 0], 4, -11, across, "end")
      + text([0, high], 7, 8, up, "start");
  }

  // The words as dots; the larger the weight, the larger the dot. Words at
  // one place share a label, above it or, on the axis and under it, below.
  function dots({ words }, points, weights, place) {
    const labels = {};
    const circles = points.map((point, i) => {
      const [x, y] = place(point), r = 3 + 11 * Math.sqrt(weights[i]);
      const here = labels[point] ??= {
        x, y, r: 0, up: point[1] > 0, words: new Set() };
      here.words.add(words[i]);
      here.r = Math.max(here.r, r);
      return `<circle cx="${px(x)}" cy="${px(y)}" r="${px(r)}"
        fill="${BLUE}" opacity="0.8"/>`;
    });
    return circles.join("") + Object.values(labels).map((here) =>
      label(here.x, here.y + (here.up ? -here.r - 4 : here.r + 12),
        [...here.words].join(", "), `text-anchor="middle" ${HALO}`)).join("");
  }

  const shape = ({ hull }, place) => `<polygon points="${
    hull.map((point) => place(point).map(px).join()).join(" ")}"
    fill="${ORANGE}" fill-opacity="0.15" stroke="${ORANGE}"
    stroke-dasharray="3 3"/>`;

  function answer(points, context, place) {
    const mean = average(points.map(() => 1 / points.length), points);
    const [[x, y], [a, b]] = [place(context), place(mean)];
    return path([[a - 6, b], [a + 6, b]], "currentColor")
      + path([[a, b - 6], [a, b + 6]], "currentColor")
      + `<rect x="-6" y="-6" width="12" height="12" fill="${ORANGE}"
        stroke="#fff" transform="translate(${px(x)} ${px(y)}) rotate(45)"/>`;
  }

  function arrow(tip, place) {
    const [x, y] = place(tip), left = tip[0] < 0;
    const circle = (r, more) => `<circle cx="${px(x)}" cy="${px(y)}"
      r="${r}" fill="${GREEN}" ${more}/>`;
    return path([place([0, 0]), [x, y]], GREEN)
      + label(x + (left ? -10 : 10), y + 4, "q",
        `text-anchor="${left ? "end" : "start"}" font-weight="600"`)
      + `<g data-mark="query" data-drag>${
        circle(22, 'opacity="0"')}${circle(7, "")}</g>`;
  }

  function draw({ x, y, set }, { scores, weights, context }, width) {
    const asked = sets[set], size = side(width);
    const pictures = planes.map((plane, i) => {
      const place = placing(plane, size);
      const last = i === planes.length - 1;
      const points = i ? asked.values : asked.keys;
      return svg(size, size + 6, axes(plane, points, place)
        + label(size / 2, 12,
          plane.title + (last ? ", ◆ context, + mean" : ""),
          'text-anchor="middle"')
        + (last ? shape(asked, place) : "")
        + dots(asked, points, weights, place)
        + (last ? answer(points, context, place) : "")
        + (i ? "" : arrow([x, y], place)));
    });
    return `<div style="display: flex; flex-wrap: wrap">${
      pictures.join("")}</div>`
      + bars(`${score} ${formula} and weight`, asked.words.map((word, i) => [
        word, weights[i],
        `${num(scores[i])}\u00a0\u00a0${num(weights[i])}`]));
  }

  function drag(state, x, y, mark, width) {
    const { low, high } = planes[0], size = side(width);
    const unit = (high - low) / (size - 2 * EDGE);
    return { x: low + (x - EDGE) * unit, y: low + (size - y) * unit };
  }

  function say({ x, y, set }, { weights, context }) {
    const most = Math.max(...weights);
    const loud = new Set(sets[set].words.filter(
      (word, i) => weights[i] > most - 1e-9));
    const at = (point) => `(${point.map((c) => num(c)).join(", ")})`;
    return `Query ${at([x, y])}, of norm ${num(Math.hypot(x, y))}. `
      + (x || y ? `The largest weight is ${num(most)}, on “${
        [...loud].join("” and “")}”` : "All weights are equal")
      + `; the context is ${at(context)}.`;
  }

  return { controls, values, draw, drag, say };
});
