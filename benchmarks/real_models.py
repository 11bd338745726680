"""What the two published models do with the book's questions.

Nothing is timed. Each fact is a count, a text, or a number that is the same
up to rounding on every machine: where MiniLM's heads look, what *bank* is in
forty sentences, how much goes to the first token, what a window costs
SmolLM2, what guesses from the text itself save, that served is alone, and how
far the likeliest token leads where a text is printed. Chapters 2, 6, 13 to 16
and 18 to 20 show some of it. It takes about three minutes of one processor.

usage: python benchmarks/real_models.py
"""

from __future__ import annotations

from typing import Any

import torch
from real_texts import BOAT, COPYING, MONEY, QUESTIONS, RIVER, TEXT
from results import store
from tokenizers import Tokenizer
from torch import Tensor

from attnbook.byte_pairs import BytePairs
from attnbook.chat import Chat
from attnbook.encoder import Encoder, mean_of_real
from attnbook.generate import Sampling, complete
from attnbook.gpt import GPT
from attnbook.layers import attention_weights
from attnbook.pretrained import load, load_tokenizer
from attnbook.published import PUBLISHED
from attnbook.server import Server
from attnbook.speculative import look_up_draft, write
from attnbook.training import loss_share
from attnbook.window import read_window

MINILM = "all-MiniLM-L6-v2"
SMOLLM2 = "SmolLM2-135M-Instruct"


def rounded(x: Tensor, digits: int = 3) -> Any:
    """Nested lists of numbers with few digits."""
    if x.ndim == 0:
        return round(x.item(), digits)
    return [rounded(part, digits) for part in x]


# The encoder.


def encoded(tokenizer: Tokenizer, text: str) -> Tensor:
    """The numbers of a text's tokens, [CLS] and [SEP] among them: (1, T)."""
    return torch.tensor([tokenizer.encode(text).ids])


def heads_on_the_boat(model: Encoder, tokenizer: Tokenizer) -> dict:
    """All weights of all heads on the boat's sentence."""
    tokens = encoded(tokenizer, BOAT)
    weights = torch.cat(attention_weights(model, tokens))  # (L, H, T, T)
    words = tokenizer.encode(BOAT).tokens
    bank, river = words.index("bank"), words.index("river")
    found = weights[:, :, bank, river]  # (L, H)
    order = found.flatten().argsort(descending=True)[:6].tolist()
    H = found.shape[1]
    return {
        "words": words,
        "weights": rounded(weights),
        "bank to river": [
            {
                "block": n // H,
                "head": n % H,
                "weight": rounded(found.flatten()[n]),
            }
            for n in order
        ],
    }


def banks(model: Encoder, tokenizer: Tokenizer) -> dict:
    """Cosines between *bank* in forty sentences, and which kind is nearer.

    For each sentence, the mean cosine with the others of its kind and with
    all of the other kind; it is told apart if the first is larger.
    """
    vectors = []  # a row for each sentence: after the embedding and each block
    for text in (*RIVER, *MONEY):
        at = tokenizer.encode(text).tokens.index("bank")
        x = model.embed(encoded(tokenizer, text))
        rows = [x[0, at]]
        for block in model.blocks:
            x = block(x)
            rows.append(x[0, at])
        vectors.append(torch.stack(rows))
    all_rows = torch.stack(vectors, 1)  # (1 + L, 40, d)
    unit = torch.nn.functional.normalize(all_rows, dim=-1)
    cosines = unit @ unit.mT  # (1 + L, 40, 40)
    n = len(RIVER)
    kind = torch.arange(2 * n) < n
    same = (kind[:, None] == kind) & ~torch.eye(2 * n, dtype=torch.bool)
    other = kind[:, None] != kind
    own_mean = (cosines * same).sum(-1) / same.sum(-1)  # (1 + L, 40)
    other_mean = (cosines * other).sum(-1) / other.sum(-1)
    parts = {
        "river, river": same & kind[:, None],
        "money, money": same & ~kind[:, None],
        "river, money": other & kind[:, None],
    }
    found: dict[str, Any] = {"sentences": 2 * n}
    for name, pairs in parts.items():
        inside = cosines[:, pairs]  # (1 + L, pairs)
        found[name] = {
            "mean": rounded(inside.mean(-1)),
            "least": rounded(inside.amin(-1)),
            "most": rounded(inside.amax(-1)),
        }
    found["told apart"] = (own_mean > other_mean).sum(-1).tolist()
    nearest = cosines.masked_fill(torch.eye(2 * n, dtype=torch.bool), -2)
    nearest = nearest.argmax(-1)  # (1 + L, 40)
    found["nearest is of its kind"] = (kind[nearest] == kind).sum(-1).tolist()
    return found


def sinks_of_the_encoder(model: Encoder, tokenizer: Tokenizer) -> dict:
    """What words give to [CLS] and [SEP], block by block, as a mean."""
    shares = []
    for text in (*RIVER, *MONEY):
        weights = torch.cat(attention_weights(model, encoded(tokenizer, text)))
        shares.append(weights[:, :, 1:-1][..., [0, -1]].mean(2))  # (L, H, 2)
    mean = torch.stack(shares).mean(0)  # (L, H, 2)
    return {
        "to [CLS]": rounded(mean[..., 0].mean(-1)),
        "to [SEP]": rounded(mean[..., 1].mean(-1)),
        "heads with more than half to [CLS]": (mean[..., 0] > 0.5)
        .sum(-1)
        .tolist(),
        "heads with more than half to both": (mean.sum(-1) > 0.5)
        .sum(-1)
        .tolist(),
    }


def sentences(model: Encoder, tokenizer: Tokenizer) -> dict:
    """Sentence vectors: alone, padded with a mask, and with padding averaged.

    The padding is 20 tokens [PAD]. The mistake is to average all columns.
    """
    texts = (
        "A man rows a boat.",
        "Somebody is rowing.",
        "The bank is closed.",
    )
    own = [mean_of_real(model(encoded(tokenizer, text))) for text in texts]
    padded = []
    wrong = []
    for text in texts:
        tokens = encoded(tokenizer, text)
        real = torch.arange(tokens.shape[1] + 20) < tokens.shape[1]
        tokens = torch.cat([tokens, tokens.new_zeros(1, 20)], 1)
        x = model(tokens, real=real[None])
        padded.append(mean_of_real(x, real[None]))
        wrong.append(x.mean(1))

    def cosines(vectors):
        unit = torch.nn.functional.normalize(torch.cat(vectors), dim=-1)
        return rounded(unit @ unit.mT)

    gap = (torch.cat(own) - torch.cat(padded)).abs().max().item()
    assert gap < 1e-5, gap
    return {
        "texts": texts,
        "cosines": cosines(own),
        "cosines with padding averaged": cosines(wrong),
    }


# The language model.


def first_token(model: GPT, tokens: Tensor) -> dict:
    """How much later tokens attend to the first token of a text.

    Tokens from the 17th on are counted.

    Args:
        model: the language model.
        tokens: the text, (1, T).

    Returns:
        the share of the first token for each block and in all, and how many
        heads of each block give it more than half.
    """
    weights = torch.cat(attention_weights(model, tokens))  # (L, H, T, T)
    share = weights[:, :, 16:, 0].mean(-1)  # (L, H)
    return {
        "tokens": tokens.shape[1],
        "to the first": rounded(share.mean(-1)),
        "of all": rounded(share.mean()),
        "heads with more than half": (share > 0.5).sum(-1).tolist(),
        "heads": share.shape[1],
    }


def windows(model: GPT, tokens: Tensor) -> dict:
    """The loss on a text, with all keys and with few, in nats a token.

    Only tokens after the first 64 count, so that every window is full.
    """
    behind = 64
    targets = tokens[:, behind + 1 :]

    def loss(logits):
        kept = logits[:, behind:-1].flatten(0, 1)
        return round(
            torch.nn.functional.cross_entropy(kept, targets[0]).item(), 3
        )

    found = {"tokens": tokens.shape[1], "all keys": loss(model(tokens))}
    for window in (16, 32, 64):
        for sinks in (0, 1, 4):
            logits = read_window(model, tokens, window=window, sinks=sinks)
            found[f"window {window}, sinks {sinks}"] = loss(logits)
    return found


def asked(model: GPT, tokenizer: BytePairs, question: str) -> list[int]:
    """The tokens that a chat sends to the model for its first question."""
    chat = Chat(model, tokenizer)
    chat.ask(question)
    return chat.tokens


def margins(model: GPT, prompt: list[int], new: list[int]) -> float:
    """The least lead of the likeliest token over the next, in logits.

    Args:
        model: the language model.
        prompt: the tokens before.
        new: the tokens that the model wrote, each of them the likeliest.

    Raises:
        AssertionError: a token of `new` is not the likeliest.
    """
    tokens = torch.tensor([prompt + new])
    logits = model(tokens[:, :-1])[0, len(prompt) - 1 :]
    assert logits.argmax(-1).tolist() == new
    best = logits.topk(2).values
    return round((best[:, 0] - best[:, 1]).min().item(), 3)


def answers(model: GPT, tokenizer: BytePairs) -> list[dict]:
    """The model's greedy answers, with the least lead of their tokens."""
    found = []
    for question in QUESTIONS:
        prompt = asked(model, tokenizer, question)
        end = tokenizer.special["<|im_end|>"]
        (new,) = complete(model, [prompt], 32, stop=[end])
        found.append(
            {
                "question": question,
                "answer": tokenizer.decode(new),
                "tokens": len(new),
                "prompt": len(prompt),
                "least margin": margins(model, prompt, new),
            }
        )
    return found


def drawn(model: GPT, tokenizer: BytePairs) -> dict:
    """Texts that are drawn after one beginning, in several ways.

    There are three texts for each way, but only one at temperature 0, since
    nothing is left to chance there.
    """
    prompt = tokenizer.encode("The boat left the river bank and")
    ways = {
        "temperature 0": Sampling(),
        "temperature 0.7": Sampling(temperature=0.7),
        "temperature 1": Sampling(temperature=1.0),
        "temperature 1, top-p 0.9": Sampling(temperature=1.0, top_p=0.9),
        "temperature 1.5": Sampling(temperature=1.5),
    }
    found = {}
    for name, sampling in ways.items():
        seeds = range(1 if sampling.temperature == 0 else 3)
        texts = [
            complete(model, [prompt], 20, sampling=sampling, seed=seed)[0]
            for seed in seeds
        ]
        found[name] = [tokenizer.decode(text) for text in texts]
    return found


def guesses(model: GPT, tokenizer: BytePairs) -> list[dict]:
    """How many calls of the model are saved by guesses from the text itself.

    Each prompt is answered greedily. The guesses do not change the answer.

    Returns:
        for each prompt the answer and, for k guesses a call, the numbers of
        calls, of guesses and of kept guesses.

    Raises:
        AssertionError: with guesses the answer is another.
    """
    look = look_up_draft(model.config.vocab_size)
    made: list[bool] = []

    def draft(text: list[int]) -> Tensor | None:
        guess = look(text)
        made.append(guess is not None)
        return guess

    end = tokenizer.special["<|im_end|>"]
    found = []
    for name, question in COPYING.items():
        prompt = asked(model, tokenizer, question)
        (plain,) = complete(model, [prompt], 60, stop=[end])
        row: dict[str, Any] = {
            "prompt": name,
            "answer": tokenizer.decode(plain),
            "tokens": len(plain),
            "least margin": margins(model, prompt, plain),
        }
        for k in (4, 8):
            made.clear()
            calls = write(
                model, prompt, 60, draft, k, sampling=Sampling(), stop=[end]
            )
            new = [token for call in calls for token in call]
            assert new == plain, name
            row[f"calls, k {k}"] = len(calls)
            row[f"guesses, k {k}"] = sum(made)
            # Each call writes one token of its own.
            row[f"kept, k {k}"] = len(plain) - len(calls)
        found.append(row)
    return found


def served(model: GPT, tokenizer: BytePairs) -> dict:
    """How many requests get the same text when served together as alone."""
    server = Server(model, n_pages=64)
    requests = []
    for n, question in enumerate(QUESTIONS):
        sampling = Sampling(temperature=0.8 * (n % 2))
        prompt = asked(model, tokenizer, question)
        options: Any = {"sampling": sampling, "seed": n}
        requests.append(
            (prompt, options, server.submit(prompt, 12, **options))
        )
    server.run()
    equal = 0
    for prompt, options, request in requests:
        (alone,) = complete(model, [prompt], 12, **options)
        equal += request.written == alone
    return {"requests": len(requests), "as alone": equal}


def cache_bytes(model: GPT) -> dict:
    """The bytes that keys and values take in the cache, in float32."""
    config = model.config
    one = model.new_cache(1, 1).nbytes
    assert config.n_kv_heads is not None
    return {
        "a token": one,
        "a token, all heads": one * config.n_heads // config.n_kv_heads,
        "a full context": one * config.context,
        "weights": sum(p.nbytes for p in model.parameters()),
    }


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    encoder, words = load(MINILM), load_tokenizer(MINILM)
    assert isinstance(encoder, Encoder) and isinstance(words, Tokenizer)
    found: dict[str, Any] = {
        "models": {n: m.sha256 for n, m in PUBLISHED.items()},
        "boat": heads_on_the_boat(encoder, words),
        "bank": banks(encoder, words),
        "encoder's sinks": sinks_of_the_encoder(encoder, words),
        "sentences": sentences(encoder, words),
    }
    model, tokenizer = load(SMOLLM2), load_tokenizer(SMOLLM2)
    assert isinstance(model, GPT) and isinstance(tokenizer, BytePairs)
    tokens = torch.tensor([tokenizer.encode(TEXT)])
    loss = loss_share(model, tokens[:, :-1], tokens[:, 1:]).item()
    found["text"] = {"text": TEXT, "loss": round(loss, 3)}
    found["first token"] = first_token(model, tokens)
    found["windows"] = windows(model, tokens)
    found["cache"] = cache_bytes(model)
    found["answers"] = answers(model, tokenizer)
    found["drawn"] = drawn(model, tokenizer)
    found["guesses"] = guesses(model, tokenizer)
    found["served"] = served(model, tokenizer)
    store("real_models", found)


if __name__ == "__main__":
    main()
