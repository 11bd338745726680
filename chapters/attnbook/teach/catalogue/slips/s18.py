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
    """Attention to latents whose scores are divided by the root of another
    width.

    Args:
        of_kept: whether it is that of what is kept, not of the queries.
        apart: whether the rotated part is divided by the root of its own.
    """

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
c18.decoupled_step.slip(
    "√(d_k + d_r) multiplies the scores",
    "Is a score larger than the product that it comes from, or smaller?",
    lambda q, turned, *rest: c18.decoupled_step.right(
        *((q.shape[-1] + turned.shape[-1]) * x for x in (q, turned)),
        *rest,
    ),
)
c18.attend_with_sink.slip(
    "the products are not scaled",
    "By what is a product of a query and a key divided?",
    lambda q, *rest: c18.attend_with_sink.right(q.shape[-1] ** 0.5 * q, *rest),
)
c18.attend_with_sink.slip(
    "√d_k multiplies the products",
    "Is a score larger than the product that it comes from, or smaller?",
    lambda q, *rest: c18.attend_with_sink.right(q.shape[-1] * q, *rest),
)
c18.latent_attention.slip(
    "√d_k multiplies the scores",
    "Is a score larger than the product that it comes from, or smaller?",
    lambda x, latents, w_query, *rest: c18.latent_attention.right(
        x, latents, w_query.shape[-1] * w_query, *rest
    ),
)
