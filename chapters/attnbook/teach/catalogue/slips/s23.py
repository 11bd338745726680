"""Slips of chapter 23."""

import torch

from attnbook.teach.catalogue import c23_taught as c23

c23.answer_targets.slip(
    "all but the last",
    "Your targets have one place too many. Which token has no next one?",
    lambda prompt, answer: torch.cat(
        [torch.full((len(prompt),), -100), answer]
    ),
)
c23.merged.slip(
    "the bias alone as it was",
    "Does the adapter add something that does not depend on x?",
    lambda weight, bias, down, up, up_bias, *, alpha: (
        weight + alpha / len(down) * up @ down,
        bias,
    ),
)
c23.others_as_baseline.slip(
    "the sum of the others",
    "Is the baseline a mean, or a sum?",
    lambda rewards: rewards - (rewards.sum(-1, keepdim=True) - rewards),
)
c23.dpo_loss.slip(
    "without the minus",
    "Is your loss small where the preferred answer has gained?",
    lambda logs, logs_before, counts, *, beta: (
        -c23.dpo_loss(logs, logs_before, counts, beta=beta)
    ),
)
