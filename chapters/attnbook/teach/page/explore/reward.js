// The best law of a reward with a brake: each answer's old probability, times
// e to the power of its reward over β.
//
// data.names    answers, the last of which stands for all others
// data.before   their probabilities
// data.rewarded the numbers of the two whose reward can be chosen
// state.octave  β is 2^octave
// state.one, state.two   their rewards; all others have 0

define("reward", ({ names, before, rewarded }) => {
  const beta = ({ octave }) => 2 ** octave;

  function values(state) {
    const rewards = before.map(() => 0);
    rewards[rewarded[0]] = state.one;
    rewards[rewarded[1]] = state.two;
    const law = softmax(before.map(
      (p, i) => Math.log(p) + rewards[i] / beta(state)));
    const moved = sum(law.map(
      (p, i) => (p > 0 ? p * Math.log(p / before[i]) : 0)));
    const mean = dot(law, rewards);
    return { law, mean, moved, aim: mean - beta(state) * moved };
  }

  const price = (octave) => num(2 ** octave, octave < 0 ? 3 : 2);
  const reward = (n) => ({ label: `Reward of ${names[rewarded[n]]}`,
    min: -1, max: 2, step: 0.25, text: (r) => num(r) });

  return {
    controls: [
      { name: "octave", label: "Price of a nat, β", min: -4, max: 4,
        step: 0.25, text: price },
      { name: "one", ...reward(0) },
      { name: "two", ...reward(1) },
      { label: "Both 1", press: () => ({ one: 1, two: 1 }) },
    ],
    values,
    draw: (state, { law, mean, moved, aim }) => bars(
      "The best law; in brackets, what was before", names.map((name, i) => [
        name, law[i], `${num(law[i], 3)} (${num(before[i], 3)})`
          .replace(" ", "\u00a0")]))
      + table("What it is worth", ["", ""], [
        ["mean reward", num(mean, 3)],
        ["KL, in nats", num(moved, 3)],
        ["mean reward − β · KL", num(aim, 3)],
      ]),
    say: (state, { law, mean, moved }) => {
      const most = law.indexOf(Math.max(...law));
      return `At a price of ${price(state.octave)} a nat, with rewards of ${
        rewarded.map((i, n) => `${num(n ? state.two : state.one)} for ${
          names[i]}`).join(" and ")}, the likeliest is ${names[most]} with ${
        num(law[most], 3)}. The mean reward is ${num(mean, 3)
      }, and the law has moved by ${num(moved, 3)} nats.`;
    },
  };
});
