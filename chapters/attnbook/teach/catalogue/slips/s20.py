"""Slips of chapter 20."""

from attnbook.teach.catalogue import c20_guessing as c20

c20.acceptance.slip(
    "how much is refused",
    "What is your number if the draft is the model itself?",
    lambda p, q: 1 - c20.acceptance(p, q),
)
c20.acceptance.slip(
    "the coins are summed, whatever is guessed",
    "What is your number if the draft is the model itself?",
    lambda p, q: (p / q).clamp(max=1).sum(-1),
)
c20.look_up.slip(
    "a place is returned",
    "Is a place asked for, or the token that stands there?",
    lambda text, n: next(
        (
            i
            for i in range(len(text) - 1, n - 1, -1)
            if text[i - n : i] == text[-n:]
        ),
        None,
    ),
)
c20.tree_mask.slip(
    "all first words are seen",
    "Two first words stand for one place. Which one does a guess follow?",
    lambda parents: c20.tree_mask(parents) | (parents < 0),
)
