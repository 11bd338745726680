"""An encoder of BERT's kind: every token of a text looks at all of them.

It is made of the same blocks as the language model. What is different is how
they are used: nothing is hidden from a token but padding, the norms come
after each layer (post-norm), and what comes out is not a guess of the next
token but a vector for each token, which knows its sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnbook.attention import check_heads
from attnbook.config import check_fields, option
from attnbook.feed_forward import ACTIVATIONS
from attnbook.layers import TransformerBlock
from attnbook.norms import make_norm
from attnbook.shapes import expect
from attnbook.values import whole


@dataclass(frozen=True)
class EncoderConfig:
    """The sizes of an encoder. The defaults are those of BERT base."""

    vocab_size: int = option(30_522, "tokens that there are", at_least=1)
    context: int = option(512, "longest sequence, in tokens", at_least=1)
    d_model: int = option(768, "width of the residual stream", at_least=1)
    n_heads: int = option(12, "heads a block", at_least=1)
    n_layers: int = option(12, "blocks", at_least=1)
    d_ff: int = option(3072, "inner width of blocks", at_least=1)
    n_types: int = option(2, "kinds of token, e.g. sentences", at_least=1)
    activation: str = option(
        "gelu", "of the feed-forward layers", choices=ACTIVATIONS
    )
    norm_eps: float = option(1e-12, "added inside the norms' root", at_least=0)
    pooler: bool = option(True, "a last layer for the first token alone")

    def __post_init__(self) -> None:
        check_fields(self)
        check_heads(self.d_model, self.n_heads)

    def parameter_count(self) -> int:
        """How many learned numbers an `Encoder` of these sizes has.

        It is computed from the sizes alone, so that no model has to be made.
        """
        d = self.d_model
        norm = 2 * d
        tables = (self.vocab_size + self.context + self.n_types) * d + norm
        attention = 4 * d * (d + 1)
        feed_forward = self.d_ff * (d + 1) + d * (self.d_ff + 1)
        blocks = self.n_layers * (attention + feed_forward + 2 * norm)
        return tables + blocks + (d * (d + 1) if self.pooler else 0)


class Encoder(nn.Module):
    """An encoder: tokens (B, T) → a vector for each, (B, T, d_model).

    Source: Devlin et al. (2019), arXiv:1810.04805, section 3.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        d_model = config.d_model
        self.token_embedding = nn.Embedding(config.vocab_size, d_model)
        self.position_embedding = nn.Embedding(config.context, d_model)
        self.type_embedding = nn.Embedding(config.n_types, d_model)
        self.embedding_norm = make_norm("layer", d_model, eps=config.norm_eps)
        self.blocks = nn.ModuleList(
            TransformerBlock(
                d_model,
                config.n_heads,
                d_ff=config.d_ff,
                norm_first=False,
                activation=config.activation,
                norm_eps=config.norm_eps,
            )
            for _ in range(config.n_layers)
        )
        self.pooler = nn.Linear(d_model, d_model) if config.pooler else None

    def forward(
        self,
        tokens: Tensor,
        *,
        real: Tensor | None = None,
        types: Tensor | None = None,
    ) -> Tensor:
        """A vector for each token: (B, T, d_model).

        Args:
            tokens: their numbers, (B, T).
            real: False at padding, (B, T), which no token looks at. What
                comes out at padding itself means nothing.
            types: which of two sentences each token is of, 0 or 1, (B, T);
                0 for all if not given.

        Raises:
            TypeError: tokens or types that are not integers.
            ValueError: a token or a type that there is not; a longer text
                than there are positions.
        """
        x = self.embed(tokens, types)  # (B, T, d_model)
        mask = None
        if real is not None:
            expect(real=(real, "B T"), B=len(tokens), T=tokens.shape[1])
            mask = real.bool()[:, None, None, :]  # (B, 1, 1, T), over keys
        for block in self.blocks:
            x = block(x, mask=mask)
        return x

    def embed(self, tokens: Tensor, types: Tensor | None = None) -> Tensor:
        """The sum of three embeddings, normalised: (B, T, d_model).

        A position is a column, counted from 0, so padding belongs at the end.
        """
        expect("integer", tokens=(tokens, "B T"))
        config = self.config
        for token in torch.stack(tokens.aminmax()).tolist():
            whole("a token", token, at_least=0, below=config.vocab_size)
        T = tokens.shape[1]
        whole("the sequence's length", T, at_most=config.context)
        if types is None:
            types = torch.zeros_like(tokens)
        expect("integer", types=(types, "B T"), B=len(tokens), T=T)
        for kind in torch.stack(types.aminmax()).tolist():
            whole("a type", kind, at_least=0, below=config.n_types)
        positions = torch.arange(T, device=tokens.device)
        x = self.token_embedding(tokens.long())
        x = x + self.type_embedding(types.long())
        x = x + self.position_embedding(positions)
        return self.embedding_norm(x)

    def pool(self, x: Tensor) -> Tensor:
        """One vector a text from the first token's: (B, T, d) → (B, d).

        BERT was trained with it to tell whether two sentences follow each
        other. Sentence encoders take `mean_of_real` instead.

        Raises:
            ValueError: an encoder that was published without this layer.
        """
        if self.pooler is None:
            raise ValueError(
                "this encoder has no pooler; its file had none. Take the "
                "first token's vector, x[:, 0], or `mean_of_real`"
            )
        return torch.tanh(self.pooler(x[:, 0]))


def mean_of_real(x: Tensor, real: Tensor | None = None) -> Tensor:
    """The mean of each text's vectors, padding left out: a sentence vector.

    Shapes: x (B, T, d), real (B, T), True at real tokens → (B, d).

    Raises:
        ValueError: a text in which nothing is real.

    Source: Reimers and Gurevych (2019), arXiv:1908.10084, section 3.
    """
    expect("float", x=(x, "B T d"))
    if real is None:
        return x.mean(1)
    expect(real=(real, "B T"), B=len(x), T=x.shape[1])
    kept = real.bool()
    count = kept.sum(1, keepdim=True)  # (B, 1)
    if (count == 0).any():
        row = int((count[:, 0] == 0).nonzero()[0])
        raise ValueError(
            f"text {row} has no real token, so there is no mean of it; "
            "expected at least one True in each row of `real`"
        )
    return x.masked_fill(~kept[:, :, None], 0).sum(1) / count
