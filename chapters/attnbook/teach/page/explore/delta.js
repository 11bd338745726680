// A state in which two pairs are written, the second by the delta rule or as
// a plain sum, and what is read at both keys afterwards.
//
// data.names, data.values   the two values: a name, and two numbers each
// state.angle   between the two keys, in degrees; the first key is (1, 0)
// state.beta    which share is written of the second
// state.rule    0 the delta rule, 1 the plain sum

define("delta", ({ names, values: [one, two] }) => {
  const key = ({ angle }) => [
    Math.cos(angle * Math.PI / 180), Math.sin(angle * Math.PI / 180)];

  // The state after the first pair has its value in the first row.
  function values(state) {
    const k = key(state);
    const written = two.map((v, i) => state.beta * (
      state.rule ? v : v - k[0] * one[i]));
    return {
      first: one.map((v, i) => v + k[0] * written[i]),
      second: one.map((v, i) => k[0] * v + written[i]),
    };
  }

  const off = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
  const pair = (numbers) => numbers.map((x) => num(x)).join(", ");

  const LOW = -5, HIGH = 7;
  function draw(state, { first, second }, width) {
    const size = Math.min(240, width - 130), middle = size / 2;
    const place = ([x, y]) => [
      115 + size * (x - LOW) / (HIGH - LOW), size * (HIGH - y) / (HIGH - LOW)];
    const arrow = ([x, y], colour, text) => path(
      [[50, middle], [50 + 40 * x, middle - 40 * y]], colour)
      + label(50 + 48 * x, middle - 48 * y + 4, text, 'text-anchor="middle"');
    const wanted = (point, colour, text) => {
      const [x, y] = place(point);
      return `<circle cx="${px(x)}" cy="${px(y)}" r="7" fill="none"
        stroke="${colour}" stroke-width="2"/>` + label(x + 11, y + 4, text);
    };
    const read = (point, colour, name) => {
      const [x, y] = place(point);
      return `<circle cx="${px(x)}" cy="${px(y)}" r="4" fill="${colour}"
        data-read="${name}"/>`;
    };
    return svg(width, size + 4,
      `<circle cx="50" cy="${px(middle)}" r="40" fill="none"
        stroke="currentColor" opacity="0.4"/>`
      + label(50, middle + 64, "keys", 'text-anchor="middle"')
      + arrow([1, 0], BLUE, "1") + arrow(key(state), ORANGE, "2")
      + path([place([LOW, 0]), place([HIGH, 0])], "currentColor",
        'opacity="0.4"')
      + path([place([0, LOW]), place([0, HIGH])], "currentColor",
        'opacity="0.4"')
      + label(place([LOW, 0])[0], size - 4, "values")
      + wanted(one, BLUE, names[0]) + wanted(two, ORANGE, names[1])
      + read(first, BLUE, "first") + read(second, ORANGE, "second"))
      + table("Rings are what was written, dots what is read",
        ["", "written", "read", "off by"], [
          ["key 1", pair(one), pair(first), num(off(first, one))],
          ["key 2", pair(two), pair(second), num(off(second, two))],
        ]);
  }

  return {
    controls: [
      { name: "angle", label: "Angle between the keys", min: 0, max: 180,
        step: 5, text: (angle) => `${angle}°` },
      { name: "beta", label: "Share written, β", min: 0, max: 1, step: 0.05,
        text: (beta) => num(beta) },
      { name: "rule", label: "What is written",
        options: ["the error (delta rule)", "the value (plain sum)"] },
    ],
    values, draw,
    say: ({ angle, beta, rule }, { first, second }) => `The keys are ${angle
    } degrees apart, and a share of ${num(beta)} of the second ${
      rule ? "value" : "error"} is written. Then key 1 reads ${pair(first)
    }, off by ${num(off(first, one))}, and key 2 reads ${pair(second)
    }, off by ${num(off(second, two))}.`,
  };
});
