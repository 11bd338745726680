// What each of N ranks keeps and sends, in four ways of sharing a training.
//
// data.ways     names of the ways, in the order of what a rank keeps
// data.models   sizes to choose from, in billions of weights
// data.cards    memories to choose from, in gigabytes
// state.ranks   their number is 2^ranks
// state.model, state.card   one of the sizes, one of the memories

define("shares", ({ ways, models, cards }) => {
  // Weights and gradients take 2 bytes each, AdamW's numbers 12.
  function values(state) {
    const N = 2 ** state.ranks, weights = models[state.model];
    const each = [16, 4 + 12 / N, 2 + 14 / N, 16 / N];
    const round = 2 * weights * (N - 1) / N;
    return { keeps: each.map((bytes) => bytes * weights),
      sends: [2, 2, 2, 3].map((times) => times * round) };
  }

  const giga = (x) => num(x, x < 100 ? 1 : 0);
  const fits = (state, keeps) => ways.filter(
    (way, i) => keeps[i] <= cards[state.card]);

  return {
    controls: [
      { name: "ranks", label: "Ranks", min: 0, max: 10, step: 1,
        text: (n) => (2 ** n).toLocaleString("en") },
      { name: "model", label: "Weights",
        options: models.map((n) => `${n} billion`) },
      { name: "card", label: "Memory of a card",
        options: cards.map((n) => `${n} GB`) },
    ],
    values,
    draw: (state, { keeps, sends }) => {
      const top = Math.max(...keeps);
      return bars("A rank keeps", ways.map((way, i) => [
        way, keeps[i] / top, `${giga(keeps[i])}\u00a0GB`]))
        + table("In gigabytes, without activations",
          ["", "keeps", "sends a step", "fits"], ways.map((way, i) => [
            way, giga(keeps[i]), giga(sends[i]),
            keeps[i] <= cards[state.card] ? "yes" : "no"]));
    },
    say: (state, { keeps, sends }) => {
      const there = fits(state, keeps);
      const n = (2 ** state.ranks).toLocaleString("en");
      return `With ${n} rank${state.ranks ? "s" : ""} and ${
        models[state.model]} billion weights a rank keeps ${
        keeps.map(giga).join(", ")} GB in the four ways, and sends ${
        giga(sends[0])} GB a step, with FSDP ${giga(sends[3])}. In ${
        cards[state.card]} GB there is room for ${
        there.length === ways.length ? "all four"
          : there.join(" and ") || "none of them"}.`;
    },
  };
});
