"""Slips of chapter 18."""

import math

from attnbook.teach.catalogue import c18_fewer_keys as c18

c18.kept_bytes.slip(
    "keys or values are counted, not both",
    "How many vectors does a head keep of a token?",
    lambda *tokens, **sizes: c18.kept_bytes.right(*tokens, **sizes) // 2,
)
c18.kept_bytes.slip(
    "a layer too many reads everything",
    "Of three layers, with every fourth whole: is there a whole one?",
    lambda n_tokens, *, n_layers, every, window, **sizes: c18.bytes_of(
        sum(
            n_tokens if layer % every == 0 else min(n_tokens, window)
            for layer in range(n_layers)
        ),
        sizes["n_kv_heads"],
        sizes["d_k"],
        sizes["size"],
    ),
)


def _scaled_by(*, of_kept=False, apart=False):
    def wrong(q, turned, kept, w_key, w_value):
        c, r = kept[:, : w_key.shape[1]], kept[:, w_key.shape[1] :]
        width = kept.shape[-1] if of_kept else q.shape[-1]
        scores = q @ w_key.mT @ c.T / math.sqrt(width)
        width = turned.shape[-1] if apart else width
        scores = scores + turned @ r.T / math.sqrt(width)
        return scores.softmax(-1) @ c @ w_value

    return wrong


c18.decoupled_step.slip(
    "the scale is that of what is kept",
    "A score is the same number as with keys: how wide would a key be?",
    _scaled_by(of_kept=True),
)
c18.decoupled_step.slip(
    "each part has a scale of its own",
    "Both parts are one product with one key: how wide is it?",
    _scaled_by(apart=True),
)
c18.decoupled_step.slip(
    "the rotated part is left out",
    "Which of your arguments knows how far a key is from the query?",
    lambda q, turned, kept, w_key, w_value: c18.decoupled_step.right(
        q, 0 * turned, kept, w_key, w_value
    ),
)
c18.decoupled_step.slip(
    "the scores are not scaled",
    "By what is a product of a query and a key divided?",
    lambda q, turned, *rest: c18.decoupled_step.right(
        *((q.shape[-1] + turned.shape[-1]) ** 0.5 * x for x in (q, turned)),
        *rest,
    ),
)
c18.attend_with_sink.slip(
    "the products are not scaled",
    "By what is a product of a query and a key divided?",
    lambda q, *rest: c18.attend_with_sink.right(q.shape[-1] ** 0.5 * q, *rest),
)
c18.kept_bytes.ask("""
    one layer that reads everything: How many of five tokens does it keep, and
    how many bytes of each?
    every second layer: Which two of four layers are whole, and how many of ten
    tokens lie in a window of three?
    none that reads everything: Which number has the first whole layer, if
    every fourth is one?
""")
c18.pool_key_value.ask("""
    two heads into one: Which of the four rows are keys and which values, of
    which head, and what is made of two heads?
    four heads into two: A head has three rows. Which rows are averaged, and
    where does their mean stand?
""")
c18.decoupled_step.ask("""
    one head, two keys: How wide is a whole key, over what do the weights sum
    to one, and what do they average?
    two heads, all widths different: Which numbers of `kept` are the latent,
    how wide is a whole key, and which queries and matrices are whose?
    as wide as the rotated part: Two queries, three keys and no mask: how many
    weights has each query?
""")
c18.attend_with_sink.ask("""
    one query, one key: Two scores, the key's and a sink of 0: what does each
    add to the sum, and what to the context?
    a sink for each head: Which sink has each head, and which scores are in the
    sum of each query?
    …is all NaN: How large is exp(800), and its gradient?
    large scores, a larger sink: Which is the largest of all scores, and how
    far below it is each?
""")
