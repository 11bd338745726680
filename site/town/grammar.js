// The town's language, as attnbook/town.py has it. A grammar is a generator: it
// yields a distribution, a Map of words to probabilities, and is sent the word
// that was chosen. `g` has the words and the numbers, which Python packs.

const uniform = (words) => new Map(words.map((w) => [w, 1 / words.length]));

// One of several distributions of different words, by weight.
const mixed = (...parts) => new Map(parts.flatMap(
  ([share, part]) => [...part].map(([word, p]) => [word, share * p])));

// The usual word more often than the others, if it is one of them.
function usually(g, usual, words) {
  if (!words.includes(usual) || words.length === 1) return uniform(words);
  const other = (1 - g.usually) / (words.length - 1);
  return new Map(words.map((w) => [w, w === usual ? g.usually : other]));
}

// Words that must come, one after the other.
function* must(text) {
  for (const word of text.split(" ")) yield uniform([word]);
}

// How a sentence begins that is no aside.
function opening(g, went, returned) {
  const fresh = uniform(g.people.filter((p) => !went.has(p)));
  const [least, most] = g.go, [once, often] = g.return;
  if (went.size < least) return fresh;
  const known = uniform(g.people.filter((p) => went.has(p)));
  if (returned === 0 && went.size < most) {
    return mixed([0.5, fresh], [0.5, known]);
  }
  if (returned < once) return known;
  if (returned < often) return mixed([0.5, known], [0.5, uniform([g.end])]);
  return uniform([g.end]);
}

function* storyGrammar(g) {
  const went = new Map();  // person → place
  let returned = 0, asides = 0;
  yield uniform([g.start]);
  while (true) {
    let first = opening(g, went, returned);
    if (asides < g.asides) {
      first = mixed([1 - g.aside, first], [g.aside, uniform(["the"])]);
    }
    const word = yield first;
    if (word === g.end) return;
    if (word === "the") {
      asides += 1;
      yield* aside(g);
      continue;
    }
    if (went.has(word)) {
      returned += 1;
      yield* must("is");
      yield uniform(g.walking);
      yield* must(`back to the ${went.get(word)}`);
    } else {
      yield uniform(g.walked);
      yield* must("to the");
      const taken = [...went.values()];
      const free = g.places.filter((place) => !taken.includes(place));
      went.set(word, yield usually(g, g.usual_place[word], free));
    }
    // How it ends: with a word on how or when, or without.
    const when = usually(g, g.usual_when[word], g.when);
    if ((yield mixed([0.2, uniform(["."])], [0.8, when])) !== ".") {
      yield* must(".");
    }
  }
}

// A sentence about a bank, or about what stands where.
function* aside(g) {
  const leavers = Object.keys(g.leavers);
  const leaves = new Map(leavers.map((w) => [w, 0.5 / leavers.length]));
  const stands = new Map(g.nouns.flatMap((noun) => [noun, `${noun}s`])
    .map((w) => [w, 0.25 / g.nouns.length]));
  const subjects = new Map([...leaves.keys(), ...stands.keys()].map(
    (w) => [w, (leaves.get(w) ?? 0) + (stands.get(w) ?? 0)]));
  const subject = yield subjects;
  const left = (leaves.get(subject) ?? 0) / subjects.get(subject);
  const after = left ? [["left", left]] : [];
  if (left < 1) {
    after.push(...g.near.map((w) => [w, (1 - left) / g.near.length]));
  }
  const verb = yield new Map(after);
  yield* must("the");
  if (verb === "left") {
    const bank = yield uniform(g.leavers[subject]);
    yield* must("bank at");
    yield uniform(g.times);
    yield* must("and");
    yield uniform(g.left[bank]);
    yield uniform(["home", "away"]);
  } else {
    const others = g.nouns.filter((noun) => noun !== subject.replace(/s$/, ""))
      .flatMap((noun) => [noun, `${noun}s`]);
    const sized = mixed([0.5, uniform(others)], [0.5, uniform(g.sizes)]);
    if (g.sizes.includes(yield sized)) yield uniform(others);
    yield uniform([subject.endsWith("s") ? "are" : "is"]);
    yield uniform([...g.colours, ...g.sizes]);
  }
  yield* must(".");
}

// What the truth says of a text: the distribution after each of its words, and
// before the first; null behind a word that no story has there.
function truths(g, words) {
  const grammar = storyGrammar(g), found = [grammar.next().value];
  for (const word of words) {
    const now = found.at(-1);
    found.push(now?.has(word) ? grammar.next(word).value ?? new Map() : null);
  }
  return found;
}
