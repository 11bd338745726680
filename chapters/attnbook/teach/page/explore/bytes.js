// What a text's cache takes, in four ways, and how many texts fit.
//
// data.layers, d_k, d_rotary, window, size   of a model; bytes of a number
// data.memories                     what there is for caches, in gigabytes
// state.heads, groups, context      powers of two: heads of queries, heads of
//                                   keys and values, tokens of a text
// state.latent, memory              numbers in a latent; one of the memories

define("bytes", ({ layers, d_k, d_rotary, window, size, memories }) => {
  const shared = ({ heads, groups }) => 2 ** Math.min(heads, groups);

  const values = (state) => {
    const S = 2 ** state.context, some = 2 * shared(state) * d_k;
    const numbers = [
      2 * 2 ** state.heads * d_k, some, state.latent + d_rotary, some];
    const token = numbers.map((n) => n * layers * size);
    const text = token.map((b, i) => b * (i === 3 ? Math.min(S, window) : S));
    return { token, text, fit: text.map(
      (b) => Math.floor(memories[state.memory] * 1e9 / b)) };
  };

  const names = (state) => {
    const G = shared(state);
    const grouped = `${G} head${G > 1 ? "s" : ""} of keys`;
    return [
      `${2 ** state.heads} heads of keys`, grouped,
      `latent ${state.latent} + ${d_rotary}`,
      `${grouped}, window`];
  };

  const giga = (b) => `${num(b / 1e9, b < 1e9 ? 3 : 1)} GB`;
  // Beside a bar a line that breaks would be of a word each.
  const whole = (text) => text.replaceAll(" ", "\u00a0");
  const short = (state) => [
    `${2 ** state.heads} heads`, `${shared(state)} heads`, "latent", "window",
  ].map(whole);

  return {
    controls: [
      { name: "heads", label: "Heads of queries", min: 0, max: 7, step: 1,
        text: (n) => `${2 ** n}` },
      { name: "groups", label: "Heads of keys", min: 0, max: 7, step: 1,
        text: (n, state) => `${shared(state)}` },
      { name: "latent", label: "Latent width", min: 64, max: 1024, step: 64,
        text: (n) => `${n}` },
      { name: "context", label: "Tokens of a text", min: 10, max: 17, step: 1,
        text: (n) => (2 ** n).toLocaleString("en") },
      { name: "memory", label: "Memory for caches",
        options: memories.map((n) => `${n} GB`) },
    ],
    values,
    draw: (state, { token, text, fit }) => {
      const name = names(state), top = Math.max(...text);
      return bars("One text's cache", short(state).map(
        (each, i) => [each, text[i] / top, whole(giga(text[i]))]))
        + table("How many fit", ["", "bytes a token", "texts"], name.map(
          (each, i) => [each, token[i].toLocaleString("en"),
            fit[i].toLocaleString("en")]));
    },
    say: (state, { fit }) => `Of texts of ${
      (2 ** state.context).toLocaleString("en")} tokens, ${
      memories[state.memory]} GB hold ${fit[0]} with a key for each head, ${
      fit[1]} with ${shared(state)}, ${fit[2]} with latents of ${
      state.latent} + ${d_rotary}, and ${fit[3]} with ${shared(state)} and a window of ${
      window.toLocaleString("en")}.`,
  };
});
