"""Slips of chapter 21."""

from attnbook.teach.catalogue import c21_states as c21

c21.hybrid_bytes.slip(
    "keys without values",
    "Which two vectors does a layer with attention keep of each token?",
    lambda n, *, n_layers, every, n_heads, d, taps, size: (
        c21.bytes_of(
            n,
            n_layers,
            every,
            n_heads,
            d,
            size,
            state=d * d,
            tail=3 * d * (taps - 1),
        )
        - n_layers // every * n * d * n_heads * size
    ),
)
c21.hybrid_bytes.slip(
    "one taken for the other",
    "Which layers keep keys: number `every`, or all but those?",
    lambda n, *, n_layers, every, n_heads, d, taps, size: (
        n_heads
        * size
        * (
            (n_layers - n_layers // every) * n * 2 * d
            + n_layers // every * (d * d + 3 * d * (taps - 1))
        )
    ),
)
c21.undo.slip(
    "multiplied by α",
    "Did the token make the state larger or smaller before it wrote?",
    lambda state, k, v, beta, alpha: (
        alpha**2 * c21.undo(state, k, v, beta, alpha)
    ),
)
