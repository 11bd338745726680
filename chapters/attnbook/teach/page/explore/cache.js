// What each call of a model computes while it writes, with a KV cache and
// without one.
//
// data.words    the prompt, and behind it what the model writes
// data.prompt   how many words the prompt has
// data.flops    of T tokens and S keys: T · (token + S · pair) + last
// data.kept     bytes that the cache takes, a token
// state.call    the first call reads the prompt; each call writes a word

define("cache", ({ words, prompt, flops, kept }) => {
  const calls = range(words.length - prompt).map((n) => n + 1);
  // Of the S words that stand there, T are read: with the cache, without.
  const length = (call) => prompt + call - 1;
  const read = (call) => [call === 1 ? prompt : 1, length(call)];
  const work = (call) => read(call).map(
    (T) => T * (flops.token + length(call) * flops.pair) + flops.last);
  const upTo = (call, numbers) => [0, 1].map(
    (way) => sum(calls.slice(0, call).map((n) => numbers(n)[way])));

  const values = ({ call }) => ({
    rows: read(call),
    reused: read(call).map((T) => length(call) - T),
    scores: read(call).map((T) => T * length(call)),
    flops: work(call),
    all_rows: upTo(call, read),
    all_flops: upTo(call, work),
    bytes: [length(call) * kept, 0],
  });

  // How a word looks that is read now, is kept, is written; a later one.
  const NOW = `border: 2px solid ${BLUE}; background: ${BLUE}; color: #fff`;
  const KEPT = `border: 2px solid ${GREEN}`, NEW = "border: 2px dotted";
  const LATER = `${NEW}; visibility: hidden`;  // it takes its room
  const boxed = (word, look) => `<span style="padding: 0.1rem 0.3rem;
    border-radius: 0.25rem; ${look}">${esc(word)}</span>`;

  function text(call) {
    const S = length(call);
    const look = (i) => (i > S ? LATER : i === S ? NEW
      : i < S - read(call)[0] ? KEPT : NOW);
    return `<div style="line-height: 2">${words.map(
      (word, i) => boxed(word, look(i))).join(" ")}</div>
      <div style="line-height: 2; font-size: 0.875rem">With the cache, a word
      is ${boxed("read now", NOW)} ${boxed("kept", KEPT)} or
      ${boxed("written now", NEW)}. Filled: computed now.</div>`;
  }

  // On top a cell for each key; below, for each query, a bar of its scores.
  function scores(call, way, x, cell) {
    const S = length(call), T = read(call)[way];
    const box = (row, column, long, now, old) => `<rect
      x="${x + column * cell + 0.5}" y="${60 + row * cell + 0.5}"
      width="${long * cell - 1}" height="${cell - 1}" ${
      now ? `fill="${BLUE}"` : `fill="none" ${old}`}/>`;
    return label(x, 36, way ? "without a cache" : "with the cache")
      + range(S).map((j) => box(
        -2, j, 1, j >= S - T, `stroke="${GREEN}"`)).join("")
      + range(S).map((i) => box(
        i, 0, way ? S : Math.max(prompt, i + 1), i >= S - T,
        'stroke="currentColor" opacity="0.5"')).join("");
  }

  const totals = calls.map((call) => upTo(call, work));
  const top = totals.at(-1)[1];
  const x = (n, width) => 60 + (width - 70) * (n - 1) / (calls.length - 1);

  function curves(call, width) {
    const place = (n, way) => [
      x(n, width), 120 - 96 * totals[n - 1][way] / top];
    const line = (way, colour, more) => {
      const [cx, cy] = place(call, way).map(px);
      return path(calls.map((n) => place(n, way)), colour, more)
        + `<circle cx="${cx}" cy="${cy}" r="6" fill="${colour}"/>`;
    };
    const name = (n, way, text) => label(
      place(n, way)[0] - 8, place(n, way)[1] - 8, text, 'text-anchor="end"');
    return svg(width, 160,
      label(0, 12, "FLOPs so far, millions")
      + path([[60, 120], [width - 10, 120]], "currentColor")
      + line(1, ORANGE, 'stroke-dasharray="7 4"') + line(0, BLUE)
      + name(9, 1, "without") + name(12, 0, "with")
      + label(52, 28, num(top / 1e6, 1), 'text-anchor="end"')
      + label(52, 124, "0", 'text-anchor="end"')
      + calls.filter((n) => n === 1 || n % 4 === 0).map((n) => label(
        x(n, width), 138, n, 'text-anchor="middle"')).join("")
      + label(x(6, width), 155, "call", 'text-anchor="middle"')
      + `<rect x="50" y="18" width="${width - 50}" height="124" opacity="0"
        data-mark="call" data-drag/>`);
  }

  const narrow = (width) => Math.min(width, 300);

  function draw({ call }, found, whole) {
    const width = narrow(whole), longest = length(calls.length);
    const cell = Math.floor((width / 2 - 8) / longest);
    const row = (name, pair) => [
      name, ...pair.map((x) => x.toLocaleString("en"))];
    return `${text(call)}<div style="display: flex; flex-wrap: wrap;
      gap: 0.5rem 1rem; justify-content: center; align-items: center"><div>${
      svg(width, 72 + longest * cell,
        label(0, 12, "K and V, and below them the scores")
        + scores(call, 0, 0, cell) + scores(call, 1, width / 2, cell))
      + curves(call, width)}</div>${
      table("Rows of K and V, scores of a head", ["", "with", "without"], [
        row("rows computed", found.rows), row("rows reused", found.reused),
        row("scores", found.scores), row("FLOPs", found.flops),
        row("rows so far", found.all_rows),
        row("FLOPs so far", found.all_flops),
        row("bytes kept", found.bytes)])}</div>`;
  }

  return {
    controls: [
      { label: "Back", press: ({ call }) => ({ call: call - 1 }) },
      { label: "Next", press: ({ call }) => ({ call: call + 1 }) },
      { name: "call", label: "Call", min: 1, max: calls.length, step: 1,
        text: (call) => `${call} of ${calls.length}` },
    ],
    values, draw,
    drag: (state, at, y, mark, width) => ({ call: 1
      + (calls.length - 1) * (at - 60) / (x(calls.length, narrow(width)) - 60),
    }),
    say: ({ call }, { rows, reused, bytes }) => {
      const S = length(call);
      return `Call ${call} ${call === 1 ? `reads the ${S} tokens of the prompt`
        : `reads “${words[S - 1]}”`} and writes “${words[S]}”. With the `
        + `cache ${rows[0]} of ${S} rows of K and V ${
          rows[0] > 1 ? "are" : "is"} computed and ${reused[0]} reused; `
        + `without it all ${rows[1]} are computed. The cache then holds `
        + `${S} tokens in ${bytes[0].toLocaleString("en")} bytes, ${kept} for `
        + "each.";
    },
  };
});
