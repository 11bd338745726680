// The model of chapter 11, in float64: embeddings, blocks of attention (with
// ALiBi) and feed-forward, a norm, and the embeddings again. It reads a word at
// a time, with a KV cache. A vector is a Float64Array; a matrix (rows, columns)
// one of its rows; the weights have the names that they have in torch.

// Lets the page answer in between, if it has not for some milliseconds.
let answered = performance.now();
async function breathe() {
  if (performance.now() - answered < 8) return;
  await new Promise((done) => setTimeout(done));
  answered = performance.now();
}

// Gives the next n bits of a text in base64, as a whole number.
function bitReader(text) {
  const bytes = atob(text);
  let at = 0, held = 0, count = 0;  // so many bits are held, not yet given
  return (n) => {
    for (; count < n; count += 8) held = held << 8 | bytes.charCodeAt(at++);
    count -= n;
    const found = held >>> count;
    held &= (1 << count) - 1;
    return found;
  };
}

// A tensor is `size` whole numbers of some bits, each times a step. The first
// six bits of all of them stand in `high`, the others in `low`.
async function unpack({ tensors, step, high, low }) {
  const first = bitReader(high), others = bitReader(low), weights = {};
  for (const [name, [size, bits]] of Object.entries(tensors)) {
    const tensor = weights[name] = new Float64Array(size);
    for (let i = 0; i < size; i++) {
      const whole = first(6) << bits - 6 | others(bits - 6);
      tensor[i] = (whole - 2 ** (bits - 1)) * step;
      if (i % 1024 === 0) await breathe();
    }
  }
  return weights;
}

const gelu = (x) => 0.5 * x * (1 + Math.tanh(
  Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

// Weights of scores; where every score is −∞, zeros.
function softmax(scores) {
  const top = Math.max(...scores);
  const parts = scores.map((s) => (top === -Infinity ? 0 : Math.exp(s - top)));
  const total = parts.reduce((a, b) => a + b, 0) || 1;
  return parts.map((p) => p / total);
}

const mean = (x) => x.reduce((a, b) => a + b, 0) / x.length;
const add = (x, y) => x.map((a, i) => a + y[i]);
// What a reader may switch: heads and blocks that are out, words that nobody
// sees, how many of the last and of the first words are seen.
const ALL_ON = () => ({
  heads: new Set(), blocks: new Set(), hidden: new Set(),
  window: Infinity, sinks: 0,
});

class Model {
  constructor({ n_heads, n_layers, norm_eps }, weights) {
    Object.assign(this, { n_heads, n_layers, norm_eps, weights });
    this.table = weights["token_embedding.weight"];  // (V, d)
    this.d = weights["norm.weight"].length;
    this.products = 0;  // multiplications of two numbers so far
  }

  newCache() {
    const empty = () => Array.from({ length: this.n_layers }, () => []);
    return { keys: empty(), values: empty() };
  }

  // Forget what stands behind the first n words.
  trim(cache, n) {
    for (const list of [...cache.keys, ...cache.values]) {
      list.length = Math.min(list.length, n);
    }
  }

  // W x + b, (rows), of x (columns).
  linear(name, x) {
    const W = this.weights[`${name}.weight`];
    const y = this.weights[`${name}.bias`].slice();
    const columns = x.length;
    for (let i = 0, at = 0; i < y.length; i++) {
      let total = 0;
      for (let j = 0; j < columns; j++) total += W[at++] * x[j];
      y[i] += total;
    }
    this.products += y.length * columns;
    return y;
  }

  scale(x) {
    const centre = mean(x);
    const variance = mean(x.map((a) => (a - centre) ** 2));
    return [centre, 1 / Math.sqrt(variance + this.norm_eps)];
  }

  layerNorm(name, x) {
    const [centre, scale] = this.scale(x);
    const weight = this.weights[`${name}.weight`];
    const bias = this.weights[`${name}.bias`];
    return x.map((a, i) => (a - centre) * scale * weight[i] + bias[i]);
  }

  // One head of one query: its weights on all words so far, and its context.
  head(h, q, keys, values, switches) {
    const d_k = q.length / this.n_heads, from = h * d_k, at = keys.length - 1;
    const slope = 2 ** (-8 * (h + 1) / this.n_heads);
    const { hidden, window, sinks } = switches;
    const weights = softmax(keys.map((key, j) => {
      if (hidden.has(j) || (at - j >= window && j >= sinks)) return -Infinity;
      let score = 0;
      for (let i = from; i < from + d_k; i++) score += q[i] * key[i];
      this.products += d_k;
      return score / Math.sqrt(d_k) - slope * (at - j);
    }));
    const context = new Float64Array(d_k);
    weights.forEach((weight, j) => {
      if (!weight) return;
      for (let i = 0; i < d_k; i++) context[i] += weight * values[j][from + i];
      this.products += d_k;
    });
    return { weights, context };
  }

  attention(n, x, cache, switches) {
    const name = `blocks.${n}.attention`, { d } = this;
    const q = this.linear(`${name}.query`, x);
    const both = this.linear(`${name}.key_value`, x);  // (2 d)
    cache.keys[n].push(both.subarray(0, d));
    cache.values[n].push(both.subarray(d));
    const contexts = new Float64Array(d), weights = [];
    for (let h = 0; h < this.n_heads; h++) {
      const one = this.head(h, q, cache.keys[n], cache.values[n], switches);
      weights.push(one.weights);
      if (!switches.heads.has(`${n}.${h}`)) {
        contexts.set(one.context, h * d / this.n_heads);
      }
    }
    return { out: this.linear(`${name}.out`, contexts), weights };
  }

  feedForward(n, x) {
    const name = `blocks.${n}.feed_forward`;
    return this.linear(`${name}.down`, this.linear(`${name}.up`, x).map(gelu));
  }

  // Read one word more. Gives the logits of the next, (V); every head's
  // weights, by block; and the parts whose sum is the stream: what the table,
  // and each layer of each block, wrote into it.
  read(cache, token, switches, withLogits = true) {
    let x = this.table.slice(token * this.d, (token + 1) * this.d);
    const parts = [["the word itself", x]], weights = [];
    const write = (name, out) => {
      parts.push([name, out]);
      x = add(x, out);
    };
    for (let n = 0; n < this.n_layers; n++) {
      if (switches.blocks.has(n)) {
        weights.push(null);
        continue;
      }
      const seen = this.layerNorm(`blocks.${n}.attention_norm`, x);
      const { out, weights: found } = this.attention(n, seen, cache, switches);
      weights.push(found);
      write(`block ${n}, attention`, out);
      write(`block ${n}, feed-forward`, this.feedForward(
        n, this.layerNorm(`blocks.${n}.feed_forward_norm`, x)));
    }
    let logits = null;
    if (withLogits) {
      logits = this.unembed(this.layerNorm("norm", x));
      this.products += this.table.length;
    }
    return { logits, weights, parts, stream: x };
  }

  // The product of a vector with every word's row of the table, (V).
  unembed(x) {
    const { d, table } = this;
    return Float64Array.from({ length: table.length / d }, (_, n) => {
      let total = 0;
      for (let i = 0; i < d; i++) total += table[n * d + i] * x[i];
      return total;
    });
  }

  // How much each part brings to each logit, [name, (V)]. The last norm divides
  // all parts by one number, so these add up to the logits; its own bias,
  // which no word changes, is the last.
  shares({ parts, stream }) {
    const [, scale] = this.scale(stream), weight = this.weights["norm.weight"];
    return [
      ...parts.map(([name, part]) => {
        const centre = mean(part);
        return [name, this.unembed(
          part.map((a, i) => (a - centre) * scale * weight[i]))];
      }),
      ["the last norm’s bias", this.unembed(this.weights["norm.bias"])],
    ];
  }
}

// Random numbers in [0, 1), the same for a seed on every machine (mulberry32,
// by Tommy Ettinger).
function randomNumbers(seed) {
  return () => {
    seed = seed + 0x6d2b79f5 | 0;
    let t = Math.imul(seed ^ seed >>> 15, seed | 1);
    t ^= t + Math.imul(t ^ t >>> 7, t | 61);
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32;
  };
}

// The probabilities at a temperature; at 0 the likeliest word has all.
function bend(logits, temperature) {
  if (temperature) return softmax(logits.map((z) => z / temperature));
  const top = logits.indexOf(Math.max(...logits));
  return logits.map((_, n) => Number(n === top));
}

// The first word at which the running sum is above the chance.
function draw(probabilities, chance) {
  const total = probabilities.reduce((a, b) => a + b, 0);
  let left = chance * total;
  for (let n = 0; n < probabilities.length; n++) {
    left -= probabilities[n];
    if (left < 0) return n;
  }
  return probabilities.findLastIndex((p) => p > 0);
}
