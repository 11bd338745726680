// A weighted average as a balance: loads on a beam, each at its value.
//
// data.names    the values' names, one a value
// data.values   the values: places on the beam
// state.load0   the first load, and so on; divided by their sum the loads are
//               the weights, and where the sum is 0 there are none

define("average", ({ names, values: places }) => {
  const most = 10, foot = 150, unit = 10;
  const [low, high] = [Math.min(...places), Math.max(...places)];
  const loads = (state) => names.map((name, j) => state[`load${j}`]);
  const state = (list) => Object.fromEntries(
    list.map((load, j) => [`load${j}`, load]));
  const round = (load) => String(Math.round(10 * load) / 10);
  const and = (list) => `${list.slice(0, -1).join(", ")} and ${list.at(-1)}`;

  function values(now) {
    const total = sum(loads(now));
    if (total === 0) return { weights: null, terms: null, average: null };
    const weights = loads(now).map((load) => load / total);
    const terms = weights.map((a, j) => a * places[j]);
    return { weights, terms, average: sum(terms) };
  }

  function draw(now, { weights, terms, average }, width) {
    const x = (value) => 45 + (width - 90) * (value - low) / (high - low);
    const beam = loads(now).map((load, j) => {
      const top = foot - unit * load;
      return label(x(places[j]), 14, names[j], 'text-anchor="middle"')
        + label(x(places[j]), 30, places[j], 'text-anchor="middle"')
        + `<rect x="${px(x(places[j]) - 16)}" y="${top}" width="32"
          height="${unit * load}" fill="${BLUE}"/>
          <circle cx="${px(x(places[j]))}" cy="${top}" r="7" fill="${BLUE}"
          stroke="currentColor"/>
          <rect x="${px(x(places[j]) - 22)}" y="36" width="44" height="124"
          opacity="0" data-mark="load${j}" data-drag/>`;
    }).join("");
    const at = average === null ? "" : `<g pointer-events="none">${
      path([[x(average), 38], [x(average), foot]], ORANGE,
        'stroke-dasharray="5 3"')}<path d="M${px(x(average))} ${
      foot + 2}l11 18h-22z" fill="${ORANGE}"/>${label(x(average), foot + 35,
      num(average), 'text-anchor="middle"')}</g>`;

    // The terms end to end: each begins where the one before it ended.
    const bar = (name, from, share, colour, text) => `<tr>
      <th scope="row" style="white-space: nowrap">${esc(name)}</th>
      <td><i style="
        margin-left: ${px(100 * from / high)}%;
        width: ${px(100 * share / high)}%; background: ${colour}"></i></td>
      <td style="white-space: nowrap">${text}</td></tr>`;
    const rows = names.map((name, j) => weights === null
      ? bar(name, 0, 0, BLUE, `0 ∕ 0 × ${places[j]}`)
      : bar(name, sum(terms.slice(0, j)), terms[j], BLUE,
        `${num(weights[j], 3)} × ${places[j]} = ${num(terms[j])}`));
    rows.push(average === null ? bar("Sum", 0, 0, ORANGE, "none")
      : bar("Sum", 0, average, ORANGE, num(average)));
    return svg(width, foot + 40, path(
      [[10, foot + 1], [width - 10, foot + 1]], "currentColor") + beam + at)
      + `<table class="bars"><caption>Weight × value</caption>${
        rows.join("")}</table>`;
  }

  return {
    controls: [
      ...names.map((name, j) => ({ name: `load${j}`, min: 0, max: most,
        step: 0.5, label: `Load on ${name}`, text: round })),
      { label: "Equal loads",
        press: () => state(names.map(() => 5)) },
    ],
    values, draw,
    drag: (now, x, y, mark) => ({ [mark]: (foot - y) / unit }),
    say: (now, { weights, average }) => {
      const start = `Loads ${and(loads(now).map(round))}`;
      if (average === null) {
        return `${start}: their sum is 0, and 0 divided by 0 is not a `
          + "number. There are no weights and no average.";
      }
      const alone = weights.indexOf(1);
      const even = weights.every((a) => a === weights[0]);
      return `${start} sum to ${round(sum(loads(now)))}; the weights are `
        + `${and(weights.map((a) => num(a, 3)))}, the average is `
        + `${num(average)}, ${even ? "the plain mean"
          : alone >= 0 ? `the value of ${names[alone]} itself`
            : `between ${low} and ${high}`}.`;
    },
  };
});
