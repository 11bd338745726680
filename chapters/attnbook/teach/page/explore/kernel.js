// Kernel regression with a Gaussian kernel, at a width and a query to choose.
//
// data.keys, data.values   the points; the keys are places from 0 to last
// data.last                the last place
// data.truth               the true curve at even steps from 0 to last
// data.widths              the widths on offer
// data.few                 those that have a button
// state.width              which of them, by number
// state.day                the query

define("kernel", ({ keys, values: counts, last, truth, widths, few }) => {
  const days = truth.map((_, i) => last * i / (truth.length - 1));
  const low = Math.min(...counts, ...truth) - 17;
  const high = Math.max(...counts, ...truth) + 3;
  const left = 34, foot = 230, listed = 4;
  const heard = (query, width) => softmax(
    keys.map((key) => -((query - key) ** 2) / (2 * width ** 2)));
  const name = (j) => `day\u00a0${num(keys[j])}`;

  function values({ width, day }) {
    const fit = days.map((query) => dot(heard(query, widths[width]), counts));
    const misses = fit.map((found, i) => (found - truth[i]) ** 2);
    const weights = heard(day, widths[width]);
    return { fit, weights, answer: dot(weights, counts),
      error: Math.sqrt(sum(misses) / misses.length) };
  }

  function draw({ width: chosen, day }, { fit, weights, answer }, width) {
    const x = (place) => left + (width - left - 10) * place / last;
    const y = (count) => foot - (foot - 20) * (count - low) / (high - low);
    const line = (list, ...look) => path(
      list.map((count, i) => [x(days[i]), y(count)]), ...look);
    const dots = 'stroke-dasharray="4 4"';
    const bell = days.map((place) => [x(place), foot - 38 * Math.exp(
      -((day - place) ** 2) / (2 * widths[chosen] ** 2))]);
    const points = keys.map((key, j) => {
      const at = `cx="${px(x(key))}" cy="${px(y(counts[j]))}"`;
      return `<circle ${at} r="${px(3 + 15 * Math.sqrt(weights[j]))}"
        fill="${BLUE}" fill-opacity="0.25" stroke="${BLUE}"/>
        <circle ${at} r="3" fill="${BLUE}"/>`;
    }).join("");

    const wide = width < 420 ? 2 : 4;
    const legend = [
      ["counts", (a, b) => `<circle cx="${a + 12}" cy="${b}" r="8"
        fill="${BLUE}" fill-opacity="0.25" stroke="${BLUE}"/>
        <circle cx="${a + 12}" cy="${b}" r="3" fill="${BLUE}"/>`],
      ["fit", (a, b) => path([[a, b], [a + 24, b]], ORANGE)],
      ["true curve", (a, b) => path([[a, b], [a + 24, b]], "currentColor",
        dots)],
      ["kernel", (a, b) => `<path d="M${a} ${b + 6}q12 -24 24 0z"
        fill="${GREEN}" fill-opacity="0.35" stroke="${GREEN}"/>`],
    ].map(([text, drawn], i) => {
      const a = 4 + Math.floor(width / wide) * (i % wide);
      const b = foot + 54 + 22 * Math.floor(i / wide);
      return drawn(a, b) + label(a + 30, b + 5, text);
    }).join("");

    const order = range(keys.length).sort((i, j) => weights[j] - weights[i]);
    const rest = sum(order.slice(listed).map((j) => weights[j]));
    return svg(width, foot + 44 + 22 * (4 / wide),
      `<path d="M${bell.map((p) => p.map(px).join(" ")).join("L")}L${
        x(last)} ${foot}L${left} ${foot}z" fill="${GREEN}"
        fill-opacity="0.35" stroke="${GREEN}"/>`
      + path([[left, 20], [left, foot], [width - 10, foot]], "currentColor")
      + [80, 100, 120].map((count) => label(left - 6, y(count) + 4, count,
        'text-anchor="end"')).join("")
      + range(4).map((i) => label(x(last * i / 3), foot + 16, last * i / 3,
        'text-anchor="middle"')).join("")
      + label(0, 12, "visitors")
      + label(x(last / 2), foot + 32, "day", 'text-anchor="middle"')
      + line(truth, "currentColor", dots) + points + line(fit, ORANGE)
      + path([[x(day), 20], [x(day), foot]], "currentColor")
      + `<circle cx="${px(x(day))}" cy="${px(y(answer))}" r="6"
        fill="${ORANGE}" stroke="currentColor"/>
        <rect x="${px(x(day) - 22)}" y="20" width="44"
        height="${foot - 20}" opacity="0" data-mark="day" data-drag/>`
      + legend)
      + bars("Largest weights × counts", [
        ...order.slice(0, listed).map((j) => [name(j), weights[j],
          `${num(weights[j])}\u00a0×\u00a0${num(counts[j], 1)}`]),
        [`other\u00a0${keys.length - listed}`, rest, num(rest)],
      ]);
  }

  return {
    controls: [
      { name: "width", label: "Bandwidth", min: 0, max: widths.length - 1,
        step: 1, text: (width) => `${widths[width]} ${
          widths[width] === 1 ? "day" : "days"}` },
      { name: "day", label: "Query: day", min: 0, max: last, step: 0.5,
        text: (day) => num(day, 1) },
      ...few.map((width) => ({ label: `${width} days`,
        press: () => ({ width: widths.indexOf(width) }) })),
    ],
    values, draw,
    drag: (now, x, y, mark, width) => (
      { day: last * (x - left) / (width - left - 10) }),
    say: ({ width, day }, { weights, answer, error }) => {
      const most = weights.indexOf(Math.max(...weights));
      const there = truth[Math.round(day / last * (truth.length - 1))];
      return `At bandwidth ${widths[width]} the answer for day `
        + `${num(day, 1)} is ${num(answer, 1)} visitors; the true curve is at `
        + `${num(there, 1)}. The most weight, ${num(weights[most])}, is on `
        + `the count of ${name(most)}. Over the month the error is `
        + `${num(error)} visitors.`;
    },
  };
});
