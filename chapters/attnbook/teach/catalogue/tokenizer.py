"""A small tokenizer of byte pairs, for tasks that need one of transformers.

Some tasks are about what a tokenizer does with several texts: padding,
special tokens, splitting. Published tokenizers would have to be fetched, so
the tasks train one of their own, which takes milliseconds.
"""

from __future__ import annotations

import warnings
from typing import Any


def train_tokenizer(texts: list[str]) -> Any:
    """Train a byte-pair tokenizer on texts.

    Args:
        texts: what it learns its pairs from.

    Returns:
        A `PreTrainedTokenizerFast` of transformers with 400 tokens, among
        them `<pad>`, `<s>` and `</s>`. It pads on the left.

    Source: Sennrich, Haddow and Birch (2016), arXiv:1508.07909.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from tokenizers.trainers import BpeTrainer

    with warnings.catch_warnings():  # of a Jupyter without widgets
        warnings.filterwarnings("ignore", message="IProgress not found")
        from transformers import PreTrainedTokenizerFast

    byte_pairs = Tokenizer(models.BPE())
    byte_pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    byte_pairs.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    byte_pairs.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_pairs,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        padding_side="left",
    )
