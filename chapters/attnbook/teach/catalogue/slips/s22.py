"""Slips of chapter 22."""

import torch

from attnbook.teach.catalogue import c22_bits as c22

c22.file_bits.slip(
    "what a group shares, counted twice",
    "How often does a group keep its scale?",
    lambda tensors: (
        sum(w * (b + 2 * s / g) for w, b, g, s in tensors)
        / sum(w for w, *_ in tensors)
    ),
)
c22.file_bits.slip(
    "in bytes",
    "Is your result in bits or in bytes?",
    lambda tensors: c22.file_bits(tensors) / 8,
)
c22.open_blocks.slip(
    "nothing taken off",
    "Which code stands for nought?",
    lambda blocks: c22.opened(blocks, less=0),
)
c22.half_steps.slip(
    "added",
    "Is a step taken off the weight or added to it?",
    lambda weight, steps: c22.half(weight + steps.cumsum(0)),
)
c22.keys_in_groups.slip(
    "without the smallest",
    "What does code 0 stand for?",
    lambda keys, cuts, bits, group: torch.cat(
        [
            c22.columns(part, bits) - part.amin(0)
            if len(part) == group
            else part
            for part in keys.split(group)
        ]
    ),
)
