// A row of weights, rounded to few bits, with one weight that may be large.
//
// data.row     the weights
// data.place   the number of the one that may be large
// data.groups  how many neighbours share a scale: the ways to choose from
// data.shared  the bits of a scale
// state.bits   of a code
// state.group  the number of a way
// state.large  the size of that weight

define("rounding", ({ row, place, groups, shared }) => {
  const weights = ({ large }) => row.map((w, i) => (i === place ? large : w));
  const others = row.filter((w, i) => i !== place).map(Math.abs);

  // To the nearest whole number, and halves to the even one, like torch.
  function nearest(x) {
    const low = Math.floor(x), rest = x - low;
    if (rest === 0.5) return low % 2 ? low + 1 : low;
    return rest < 0.5 ? low : low + 1;
  }

  function values(state) {
    const all = weights(state), most = 2 ** (state.bits - 1) - 1;
    const size = groups[state.group];
    const scales = range(all.length / size).map((n) => Math.max(
      ...all.slice(n * size, (n + 1) * size).map(Math.abs)) / most);
    const codes = all.map((w, i) => nearest(w / scales[Math.floor(i / size)]));
    const rounded = codes.map((c, i) => c * scales[Math.floor(i / size)] + 0);
    const off = all.map((w, i) => Math.abs(w - rounded[i]));
    return { scales, codes, rounded, off, largest: Math.max(...off),
      kept: state.bits + shared / size };
  }

  return {
    controls: [
      { name: "bits", label: "Bits of a code", min: 2, max: 8, step: 1,
        text: (n) => `${n}` },
      { name: "group", label: "One scale for",
        options: groups.map((n) => `${n} weights`) },
      { name: "large", label: `Weight ${place + 1}`, min: 0.6, max: 9,
        step: 0.3, text: (w) => num(w) },
    ],
    values,
    draw: (state, { codes, rounded, off }) => bars(
      `Each weight's error, beside ${num(Math.max(...others))}`,
      weights(state).map((w, i) => [
        num(w), off[i] / Math.max(...others), num(off[i])]))
      + table("From weight to code and back", ["weight", "code", "is now"],
        weights(state).map((w, i) => [
          num(w), `${codes[i]}`.replace("-", "−"), num(rounded[i])])),
    say: (state, { scales, codes, largest, kept }) => {
      const lost = codes.filter((c, i) => c === 0).length;
      return `With ${state.bits} bits and a scale for ${groups[state.group]
      } weights, of which one is ${num(state.large)}, the largest step is ${
        num(Math.max(...scales), 3)}. No weight is off by more than ${
        num(largest, 3)}; ${lost} of ${codes.length} have become 0. That is ${
        num(kept)} bits a weight, with the scales.`;
    },
  };
});
