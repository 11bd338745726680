// The pages of a server's pool, step by step.
//
// data.size     tokens that a page has room for
// data.pages    how many pages there are
// data.words    for each request, by its letter, the words of its text
// data.steps    after each step, for each request: its state, its table, how
//               many tokens are kept and how many are written; and the pages
//               that are free and can still be found
// state.step    the number of steps made

define("pages", ({ size, pages, words, steps }) => {
  const letters = Object.keys(words);
  const colour = Object.fromEntries(
    letters.map((letter, i) => [letter, [BLUE, ORANGE, GREEN][i]]));
  const kept = (step) => letters.filter(
    (letter) => steps[step].requests[letter].table.length);
  const holders = (step, page) => kept(step).filter(
    (letter) => steps[step].requests[letter].table.includes(page));

  const values = ({ step }) => {
    const all = range(pages).map((page) => holders(step, page).length);
    const now = kept(step).map((letter) => steps[step].requests[letter]);
    return {
      holders: all,
      held: all.filter((n) => n > 0).length,
      shared: all.filter((n) => n > 1).length,
      found: steps[step].found.length,
      // A shared page is full, so each empty slot is one request's own.
      empty: sum(now.map((r) => r.table.length * size - r.kept)),
    };
  };

  // How many slots of a page have a token.
  const filled = (step, page) => Math.max(0, ...kept(step).map((letter) => {
    const { table, kept: n } = steps[step].requests[letter];
    const at = table.indexOf(page);
    return at < 0 ? 0 : Math.min(size, n - at * size);
  }));

  function picture(step, width) {
    const slot = 16, wide = size * slot + 16;
    const columns = Math.max(1, Math.floor(width / wide));
    const box = (page) => {
      const x = 4 + wide * (page % columns);
      const y = 6 + 52 * Math.floor(page / columns);
      const who = holders(step, page), full = filled(step, page);
      const again = steps[step].found.includes(page);
      return range(size).map((i) => `<rect x="${x + slot * i}" y="${y}"
        width="${slot - 1}" height="20" ${i < full
          ? `fill="${colour[who[who.length > 1 && i % 2 ? 1 : 0]]}"`
          : `fill="none" stroke="currentColor" opacity="0.6" ${
            again ? "" : 'stroke-dasharray="2 3"'}`}/>`).join("")
        + label(x, y + 36, `${page}: ${who.join(" and ")
          || (again ? "kept" : "free")}`);
    };
    return svg(width, 10 + 52 * Math.ceil(pages / columns),
      range(pages).map(box).join(""));
  }

  function draw({ step }, found, whole) {
    const rows = letters.map((letter) => {
      const { state, table: own, kept: n, tokens } = steps[step]
        .requests[letter];
      return [letter, state, own.join(" ") || "–", n, tokens];
    });
    return picture(step, Math.min(whole, 568))
      + table("The requests", ["", "state", "table", "kept", "tokens"], rows)
      + letters.map((letter) => {
        const { tokens } = steps[step].requests[letter];
        return `<p style="font-size: 0.875rem"><b
          style="border-bottom: 3px solid ${colour[letter]}">${letter}</b> ${
          esc(words[letter].slice(0, tokens).join(" ")) || "–"}</p>`;
      }).join("");
  }

  return {
    controls: [
      { label: "Back", press: ({ step }) => ({ step: step - 1 }) },
      { label: "Next", press: ({ step }) => ({ step: step + 1 }) },
      { name: "step", label: "Step", min: 0, max: steps.length - 1, step: 1,
        text: (step) => `${step} of ${steps.length - 1}` },
    ],
    values, draw,
    say: ({ step }, { held, shared, found, empty }) => `After step ${step}, ${
      held} of ${pages} pages are held, ${shared} of them by more than one `
      + `request; ${found} free pages are kept and can be found again. ${
        empty} slots of held pages are empty.`,
  };
});
