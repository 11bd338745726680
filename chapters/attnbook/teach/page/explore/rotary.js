// The rotary dial: a query and a key, turned by their positions' angles.
// All pairs of components hold the same two numbers, so that they differ in
// their speed alone.
//
// data.query, data.key  the two numbers of a pair, before it is turned
// data.omegas           the angle of one step, a number a pair
// data.last, data.front  the largest m or n; the most tokens in front
// state.m, n     the positions of query and key
// state.shift    the tokens put in front of both
// state.pair     the pair that is drawn

define("rotary", ({ query, key, omegas, last, front }) => {
  const position = (name, label, max) => (
    { name, label, min: 0, max, step: 1, text: (p) => `${p}` });
  const controls = [
    position("m", "query’s position m", last),
    position("n", "key’s position n", last),
    position("shift", "tokens put in front", front),
    { name: "pair", label: "Pair", options: omegas.map(
      (omega, i) => `${i}, ω = ${omega}`) },
  ];

  const turned = ([a, b], angle) => [
    a * Math.cos(angle) - b * Math.sin(angle),
    a * Math.sin(angle) + b * Math.cos(angle)];

  function values({ m, n, shift, pair }) {
    const both = omegas.map((omega) => [
      turned(query, (m + shift) * omega), turned(key, (n + shift) * omega)]);
    const products = both.map(([q, k]) => dot(q, k));
    return { query: both[pair][0], key: both[pair][1], products,
      score: sum(products) };
  }

  // The scores at every distance, of each pair and of all.
  const distances = range(2 * last + 1).map((d) => d - last);
  const curves = distances.map((d) => values(
    { m: Math.max(d, 0), n: Math.max(-d, 0), shift: 0, pair: 0 }));

  const side = (width) => Math.min(width, 300);
  const reach = 1.2 * Math.hypot(...query);

  function hand(name, before, after, colour, at) {
    const [x, y] = at(after), [a, b] = at(after.map((c) => c * 1.12));
    const circle = (r, more) => `<circle cx="${px(x)}" cy="${px(y)}"
      r="${r}" fill="${colour}" ${more}/>`;
    return path([at([0, 0]), at(before)], colour, 'stroke-dasharray="2 4"')
      + path([at([0, 0]), [x, y]], colour)
      + label(a, b + 4, name[0], `font-weight="600" text-anchor="middle"`)
      + `<g data-mark="${name}" data-drag>${
        circle(18, 'opacity="0"')}${circle(6, "")}</g>`;
  }

  function draw({ m, n, shift, pair }, { query: q, key: k, products, score },
    width) {
    const size = side(width), half = size / 2, unit = (half - 12) / reach;
    const at = ([a, b]) => [half + unit * a, half - unit * b];
    const dial = svg(size, size,
      [[[-1, 0], [1, 0]], [[0, -1], [0, 1]]].map((line) => path(
        line.map((end) => at(end.map((c) => c * reach))), "currentColor",
        'opacity="0.3"')).join("")
      + [query, key].map((pair) => `<circle cx="${half}" cy="${half}"
        r="${px(unit * Math.hypot(...pair))}" fill="none"
        stroke="currentColor" opacity="0.3"/>`).join("")
      + hand("key", key, k, ORANGE, at) + hand("query", query, q, BLUE, at));

    const heights = curves.map((c) => [c.products[pair], c.score]);
    const low = Math.min(...heights.flat());
    const high = Math.max(...heights.flat());
    const spot = (d, height) => [width / 2 + (width / 2 - 40) * d / last,
      20 + 100 * (high - height) / (high - low)];
    const curve = (i, colour, more) => path(
      heights.map((h, at) => spot(distances[at], h[i])), colour, more);
    const dots = [[products[pair], BLUE], [score, ORANGE]].map(
      ([height, colour]) => {
        const [x, y] = spot(m - n, height);
        return `<circle cx="${px(x)}" cy="${px(y)}" r="5" fill="${colour}"/>`;
      });
    const plot = svg(width, 160, path(
      [spot(-last, 0), spot(last, 0)], "currentColor", 'opacity="0.3"')
      + curve(0, BLUE, "") + curve(1, ORANGE, 'stroke-dasharray="5 3"')
      + dots.join("") + label(width / 2, 12,
        `solid: q·k of pair ${pair}, dashed: of all`, 'text-anchor="middle"')
      + [-last, 0, last].map((d) => label(spot(d, 0)[0], 138, num(d, 0),
        'text-anchor="middle"')).join("")
      + [low, 0, high].map((h) => label(36, spot(0, h)[1] + 4, num(h, 1),
        'text-anchor="end"')).join("")
      + label(width / 2, 156, "distance m − n", 'text-anchor="middle"'));

    const rows = omegas.map((omega, i) => [
      `${i}`, num((m + shift) * omega, 3), num((n + shift) * omega, 3),
      [num(products[i], 3), i === pair ? "font-weight: 600" : ""]]);
    return `<div style="display: flex; flex-wrap: wrap;
      align-items: center">${dial}${
      table(`Distance ${num(m - n, 0)}, angles in radians`,
        ["pair", "q turned", "k turned", "q·k"],
        [...rows, ["all", "", "", num(score, 3)]])}</div>${plot}`;
  }

  return {
    controls, values, draw,
    // The position nearest to where the hand is pulled, half a turn at most.
    drag: (state, x, y, mark, width) => {
      const half = side(width) / 2, now = values(state)[mark];
      const pulled = Math.atan2(half - y, x - half);
      const turn = 2 * Math.PI, by = pulled - Math.atan2(now[1], now[0]);
      const steps = (by - turn * Math.round(by / turn)) / omegas[state.pair];
      const name = mark === "query" ? "m" : "n";
      return { [name]: state[name] + Math.round(steps) };
    },
    say: ({ m, n, shift, pair }, { products, score }) => {
      const at = (p) => (shift ? `${p} + ${shift} = ${p + shift}` : p);
      return `Query at ${at(m)}, key at ${at(n)}, distance ${
        num(m - n, 0)}: pair ${pair} gives ${num(products[pair], 3)}, all `
        + `${omegas.length} pairs together ${num(score, 3)}.`;
    },
  };
});
