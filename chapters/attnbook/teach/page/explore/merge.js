// One query reads its keys block by block: peak, total and context so far.
//
// data.words, data.scores, data.values   the keys: name, score, a pair each
// state.order   0 as written, 1 from the end
// state.size    keys in a block, less one
// state.read    how many blocks are read

define("merge", ({ words, scores, values: pairs }) => {
  const part = (keys) => {
    const peak = Math.max(...keys.map((j) => scores[j]));
    const exp = keys.map((j) => Math.exp(scores[j] - peak));
    return { peak, total: sum(exp), context: [0, 1].map(
      (c) => dot(exp, keys.map((j) => pairs[j][c]))) };
  };
  const merge = (a, b) => {
    const peak = Math.max(a.peak, b.peak);
    const [f, g] = [a, b].map((x) => Math.exp(x.peak - peak));
    return { peak, total: f * a.total + g * b.total,
      context: a.context.map((c, i) => f * c + g * b.context[i]) };
  };

  const blocks = ({ order, size }) => {
    const keys = order ? range(words.length).reverse() : range(words.length);
    return range(Math.ceil(keys.length / (size + 1))).map(
      (n) => keys.slice(n * (size + 1), (n + 1) * (size + 1)));
  };
  const read = (state) => Math.min(state.read, blocks(state).length);

  // The parts after each block, up to the state's.
  const steps = (state) => blocks(state).slice(0, read(state)).map(part)
    .reduce((done, next) => [
      ...done, done.length ? merge(done.at(-1), next) : next], []);

  const values = (state) => {
    const done = steps(state), now = done.at(-1);
    return { ...now, average: now.context.map((c) => c / now.total),
      factor: done.length > 1 ? Math.exp(done.at(-2).peak - now.peak) : 0 };
  };

  const pair = (numbers) => numbers.map((x) => num(x)).join(", ");

  function draw(state, found) {
    const n = read(state), before = steps(state).at(-2);
    const rows = blocks(state).flatMap((keys, b) => keys.map((j) => {
      const weight = Math.exp(scores[j] - found.peak);
      return b < n
        ? [(b === n - 1 ? "*" : "") + words[j], weight, num(weight)]
        : [words[j], 0, "–"];
    }));
    return bars("exp(score − peak); * just read, – not yet", rows)
      + table("The part so far", ["", "before", "now"], [
        ["peak", before ? num(before.peak) : "−∞", num(found.peak)],
        ["factor for what was there", "", num(found.factor)],
        ["total", before ? num(before.total) : "0", num(found.total)],
        ["context", before ? pair(before.context) : "0, 0",
          pair(found.context)],
        ["context / total", "", pair(found.average)]]);
  }

  return {
    controls: [
      { name: "order", label: "Order",
        options: ["as written", "from the end"] },
      { name: "size", label: "Keys a block", options: ["1", "2", "3"] },
      { label: "Back", press: (state) => ({ read: read(state) - 1 }) },
      { label: "Next", press: (state) => ({ read: read(state) + 1 }) },
      { name: "read", label: "Blocks read", min: 1, max: words.length,
        step: 1, text: (n) => `${n}` },
    ],
    values, draw,
    say: (state, { peak, factor, total, average }) => {
      const n = read(state), all = blocks(state);
      return `${n} of ${all.length} blocks are read. The peak is ${num(peak)
      }; what was there before is multiplied by ${num(factor)}. The total is ${
        num(total)} and the average so far ${pair(average)}.`;
    },
  };
});
