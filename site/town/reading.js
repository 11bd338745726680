// A text that the model reads while a reader writes it: its words, what was
// found at each, and what each took. `town` has the model and the language.

const largest = (x, y) => Math.max(...x.map((a, i) => Math.abs(a - y[i])));

class Reading {
  constructor(town, words) {
    this.town = town;
    this.switches = ALL_ON();
    this.cached = true;
    this.temperature = 1;
    this.random = randomNumbers(1);
    this.read(words);
  }

  // All from the first word on: what was kept does not hold once something is
  // switched.
  read(words = this.words) {
    Object.assign(this, { words: [], found: [], alone: [], difference: 0 });
    this.cache = this.town.model.newCache();
    for (const word of words) this.push(word, true);
    if (!this.cached) this.push(this.cut(this.words.length - 1)[0]);
  }

  // A word more. Without the cache all words before it are read again, and
  // what comes out is held against what the cache gives.
  push(word, cached = this.cached) {
    const { model, number } = this.town;
    const token = number.get(word);
    let before = model.products;
    let found = model.read(this.cache, token, this.switches);
    this.alone.push(model.products - before);
    if (!cached) {
      const kept = found, cache = model.newCache();
      before = model.products;
      for (const earlier of this.words) {
        model.read(cache, number.get(earlier), this.switches, false);
      }
      found = model.read(cache, token, this.switches);
      this.difference = largest(kept.logits, found.logits);
    }
    this.words.push(word);
    this.found.push(found);
    this.took = model.products - before;  // multiplications
  }

  // What each word takes without the cache: every earlier word is read again,
  // but for its logits.
  again() {
    const { alone, town: { model } } = this;
    let all = 0;
    return alone.map((one) => {
      all += one;
      const found = all;
      all -= model.table.length;
      return found;
    });
  }

  // Take back all but the first n words; gives those that are gone.
  cut(n) {
    this.town.model.trim(this.cache, n);
    this.found.length = this.alone.length = n;
    return this.words.splice(n);
  }

  // What the truth says before each word, and behind the last.
  get truth() {
    const text = this.words.join(" ");
    if (text !== this.known?.text) {
      this.known = { text, truth: truths(this.town.grammar, this.words) };
    }
    return this.known.truth;
  }

  ended() {
    return this.words.at(-1) === this.town.grammar.end;
  }

  // The three distributions of the word after word n, (V) each; the truth's is
  // null where no story has the words so far.
  next(n) {
    const { words, bigram, number } = this.town, truth = this.truth[n + 1];
    return {
      truth: truth && words.map((word) => truth.get(word) ?? 0),
      model: bend(this.found[n].logits, this.temperature),
      bigram: bigram(number.get(this.words[n])),
    };
  }

  // What each paid, −log p in nats, for the words 1 to n; at temperature 1.
  losses(n) {
    const { town: { bigram, number }, truth } = this;
    const paid = { truth: [], model: [], bigram: [] };
    for (let i = 1; i <= n; i++) {
      const token = number.get(this.words[i]);
      paid.truth.push(-Math.log(truth[i]?.get(this.words[i]) ?? 0));
      const before = this.found[i - 1];
      before.p ??= softmax(before.logits);
      paid.model.push(-Math.log(before.p[token]));
      paid.bigram.push(-Math.log(
        bigram(number.get(this.words[i - 1]))[token]));
    }
    return paid;
  }

  // Draw a word from the model's distribution, and write it.
  write() {
    const p = this.next(this.words.length - 1).model;
    this.push(this.town.words[draw(p, this.random())]);
  }

  // Guess ahead (chapter 20): the bigram guesses up to k words, the model reads
  // them, keeps a beginning, and adds a word of its own.
  guessAhead(k) {
    const { words, bigram, number, grammar } = this.town;
    const from = this.words.length, drafts = [];
    while (drafts.length < k && !this.ended()) {
      drafts.push(bigram(number.get(this.words.at(-1))));
      this.push(words[draw(drafts.at(-1), this.random())]);
    }
    const guesses = this.words.slice(from);
    const model = guesses.map((_, i) => this.next(from + i - 1).model);
    let kept = 0, p = null;
    for (; kept < guesses.length; kept++) {
      const token = number.get(guesses[kept]);
      const [ours, theirs] = [model[kept], drafts[kept]];
      if (this.random() >= ours[token] / theirs[token]) {
        p = ours.map((a, i) => Math.max(0, a - theirs[i]));  // the residual
        break;
      }
    }
    this.cut(from + kept);
    if (p) this.push(words[draw(p, this.random())]);
    else if (guesses.at(-1) !== grammar.end) this.write();
    return { guesses, kept };
  }
}

// How far the model is from the notebook's numbers, over a set of stories, each
// with what is switched: the largest difference of a logit.
async function largestDifference({ model, number }, checks) {
  let most = 0;
  for (const { words, heads, blocks, hidden, logits, losses } of checks) {
    const cache = model.newCache(), switches = {
      ...ALL_ON(), heads: new Set(heads), blocks: new Set(blocks),
      hidden: new Set(hidden),
    };
    for (const [n, word] of words.entries()) {
      const found = model.read(cache, number.get(word), switches).logits;
      const next = number.get(words[n + 1]);
      const off = next === undefined ? largest(logits, found)
        : Math.abs(losses[n] + Math.log(softmax(found)[next]));
      if (!(off <= most)) most = off;  // NaN stays
      await breathe();
    }
  }
  return most;
}
