"""Chapter 11, a small language model: tasks and known mistakes."""

import itertools
import math
from collections import Counter

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import drawn, f64, ints, randns
from attnbook.teach.check.own.optimizers import as_parameters, stepped
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(11)


@task(
    against="slices of lists",
    cases={
        "three tokens": ([[5, 6, 7]], 0),
        "two texts, one shorter": ([[1, 0, 3, 4], [5, 6]], 0),
        "another padding": ([[3, 9], [4, 50, 300, 50, 4], [1, 2, 50]], 50),
        "a text of 300 tokens": ([[*range(300)], [8, 7]], 0),
        "a text of one token": ([[7], [5, 6, 8]], 0),
        "17 texts, padded with 300": (
            [[*range(n, 2 * n + 2)] for n in range(17)],
            300,
        ),
    },
)
def shifted(texts, pad):
    """tokens and targets of some texts, (B, T) both, T one less than the
    longest: each text without its last token, padded with pad; and without its
    first, padded with −100"""
    longest = max(map(len, texts))
    spare = [longest - len(text) for text in texts]
    tokens = [t[:-1] + [pad] * n for t, n in zip(texts, spare)]
    targets = [t[1:] + [-100] * n for t, n in zip(texts, spare)]
    return torch.tensor(tokens), torch.tensor(targets)


@shifted.mistake(
    "KempnerInstitute/KempnerForge #154",
    symptom=(symptoms.LOSS_TOO_LOW, symptoms.BAD_TEXT),
)
def asks_for_the_token_itself(texts, pad):
    """The loss falls to nearly zero within minutes, and the model writes one
    word for ever: it has learned to repeat its input.
    cause: The targets are the tokens themselves, one place too early. The mask
    hides the future, but a token may always see itself.
    fix: The target of token t is token t + 1."""
    rows = [torch.tensor(text) for text in texts]
    tokens = pad_sequence([row[:-1] for row in rows], True, pad)
    return tokens, pad_sequence([row[:-1] for row in rows], True, -100)


@shifted.mistake(
    "huggingface/transformers #44642, InternLM/InternLM #318",
    symptom=(symptoms.TRAINS_BADLY, symptoms.BAD_TEXT),
)
def shifts_twice(texts, pad):
    """The loss falls, but not far. Asked to write, the model leaves out every
    other word.
    cause: The shift is done twice, in the data and again in the loss, so that
    the model is asked for the word after the next.
    fix: Shift in one place; know whether your library's loss does it."""
    rows = [torch.tensor(text) for text in texts]
    tokens = pad_sequence([row[:-1] for row in rows], True, pad)
    targets = pad_sequence([row[2:] for row in rows], True, -100)
    return tokens, F.pad(targets, (0, 1), value=-100)


@shifted.mistake(
    "lucidrains/DALLE-pytorch #57, EleutherAI/gpt-neo #45",
    symptom=symptoms.LOSS_TOO_LOW,
)
def asks_for_the_padding(texts, pad):
    """The loss looks better the more padding there is, and the model is good
    at one thing: after the end comes padding.
    cause: The targets are padded with the number of the padding token, an
    answer like any other, instead of one that the loss leaves out.
    fix: Pad the targets with −100, which the loss does not count."""
    rows = [torch.tensor(text) for text in texts]
    tokens = pad_sequence([row[:-1] for row in rows], True, pad)
    return tokens, pad_sequence([row[1:] for row in rows], True, pad)


def _some_targets(B, T):
    """Targets from 0 to 4, (B, T), of which every sixth is left out."""
    targets = torch.arange(B * T).reshape(B, T) % 6
    return targets.where(targets < 5, -100)


@task(
    against="torch's F.cross_entropy",
    gradients=True,
    cases={
        "one token of three": (f64([[2, 0, -1]]), ints([0])),
        "two texts of four and two": (
            randn(2, 4, 5, seed=1),
            ints([2, 0, 4, 1], [3, 1, -100, -100]),
        ),
        "large logits, targets here and there": (
            300 * randn(3, 3, 260, seed=2),
            ints([-100, -100, 1], [0, 258, 2], [-100, 0, -100]),
        ),
        "17 texts of 131 targets": (
            randn(17, 131, 5, seed=3),
            _some_targets(17, 131),
        ),
    },
)
def cross_entropy(logits, targets):
    """the mean of −log p of the targets, in nats, over the targets that are
    not −100: one number from logits (B, T, V) and targets (B, T)"""
    return F.cross_entropy(logits.transpose(1, 2), targets)


@cross_entropy.mistake(
    "Lightning-Universe/lightning-bolts #654, tflearn/tflearn #562",
    symptom=(symptoms.OTHER_SCORE, symptoms.TRAINS_BADLY),
)
def takes_softmax_twice(logits, targets):
    """Training goes on, slowly. However sure the model is, the loss stays far
    above zero: with 100 words, above 3.6.
    cause: The function takes logits and applies a softmax of its own, but is
    given probabilities. They lie between 0 and 1, and the second softmax makes
    them nearly equal.
    fix: Give F.cross_entropy the logits."""
    probabilities = logits.softmax(-1)
    return F.cross_entropy(probabilities.flatten(0, 1), targets.flatten())


@cross_entropy.mistake(
    "d2l-ai/d2l-en #2076, tensorflow/docs #1460",
    symptom=(symptoms.LOSS_TOO_LOW, symptoms.OTHER_SCORE),
)
def divides_by_all_places(logits, targets):
    """The loss of a batch with much padding looks small, though no word was
    guessed better.
    cause: The sum over the real targets is divided by all places of the batch,
    the padded ones included.
    fix: Divide by the number of targets that are asked for."""
    return F.cross_entropy(logits.mT, targets, reduction="none").mean()


@cross_entropy.mistake(
    "huggingface/transformers #24725, meta-pytorch/torchtune #1875",
    symptom=symptoms.OTHER_SCORE,
)
def averages_the_texts_means(logits, targets):
    """A word of a short text counts more than one of a long text, and the loss
    changes when the same texts are batched otherwise.
    cause: A mean for each text first, then the mean of these means: a weighted
    average with other weights than intended.
    fix: Add up all losses, and divide once."""
    losses = F.cross_entropy(logits.mT, targets, reduction="none")  # (B, T)
    return (losses.sum(-1) / (targets != -100).sum(-1)).mean()


@task(
    against="a sum over all words",
    cases={
        "one word of four": ([torch.tensor([0.25]).log()],),
        "two texts of the same length": ([*-randn(2, 3, seed=1).abs()],),
        "one short, one long": (
            [*(-randn(1200, seed=2).abs()).split([1, 1199])],
        ),
        "twenty texts of 131 words": ([*-randn(20, 131, seed=3).abs()],),
    },
)
def perplexity(texts):
    """the perplexity of a list of texts: exp of the mean of −log p over all
    their words; each text is given as the log p of its words, in nats, (T,)"""
    flat = [log for text in texts for log in text.tolist()]
    return math.exp(-math.fsum(flat) / len(flat))


@perplexity.mistake("huggingface/evaluate #241", symptom=symptoms.OTHER_SCORE)
def raises_two_to_the_nats(texts):
    """The perplexity is far too good: 2.6 where it should be 4.
    cause: A loss in nats (natural logarithm) is raised as if it were in bits
    (logarithm of base 2).
    fix: The base of the power is the base of the logarithm: exp for nats, 2 **
    for bits."""
    return 2 ** -torch.cat(list(texts)).mean()


@perplexity.mistake("lisa-lab/pylearn2 #1383", symptom=symptoms.OTHER_SCORE)
def averages_perplexities(texts):
    """The number looks plausible and is too large, the more so the more the
    texts differ.
    cause: A perplexity is taken of each text, and these are averaged. But the
    mean of powers is not the power of the mean.
    fix: Average the losses over all words first, then take exp once."""
    return torch.stack([(-text.mean()).exp() for text in texts]).mean()


class Parts(list):
    """The blocks of a torch encoder; `encoder` is all of it."""


def _model(vocab_size, d_model, n_layers, seed, context=8):
    """Drawn parts of a language model: two embeddings, blocks and a norm.

    The blocks are those of torch's encoder, which is kept beside them, since
    the reference calls it as a whole.
    """
    layer = nn.TransformerEncoderLayer(
        d_model, 2, 2 * d_model, dropout=0.0, batch_first=True, norm_first=True
    )
    encoder = nn.TransformerEncoder(
        layer, n_layers, nn.LayerNorm(d_model), enable_nested_tensor=False
    )
    encoder = drawn(encoder, seed=seed).requires_grad_(False)
    blocks = Parts(encoder.layers)
    blocks.encoder = encoder
    sizes = (vocab_size, d_model), (context, d_model)
    return *randns(*sizes, seed=seed), blocks, encoder.norm


@task(
    against="torch's TransformerEncoder",
    gradients=True,
    cases=lambda: {
        "two tokens, one block": (ints([1, 1]), *_model(3, 4, 1, seed=1)),
        "two blocks": (ints([0, 2, 4, 2]), *_model(5, 6, 2, seed=2)),
        "two texts": (
            ints([3, 0, 1], [262, 6, 2]),
            *_model(263, 4, 3, seed=3),
        ),
        "17 texts, 17 blocks": (
            torch.arange(34).reshape(17, 2) % 5,
            *_model(5, 4, 17, seed=4),
        ),
        "131 tokens, 130 wide": (
            torch.arange(131)[None] * 7 % 300,
            *_model(300, 130, 1, seed=5, context=140),
        ),
    },
)
def language_model(tokens, token_table, position_table, blocks, norm):
    """the logits (B, T, V) of a language model: embeddings of tokens and of
    positions, the blocks in turn, the final norm, and the head, which is the
    table of the embeddings again"""
    B, T = tokens.shape
    one_hot = F.one_hot(tokens, len(token_table)).to(token_table.dtype)
    x = one_hot @ token_table + position_table[None, :T]
    return blocks.encoder(x) @ token_table.T


@language_model.mistake(
    "guocheng2025/Transformer-Encoder #1", symptom=symptoms.TRAINS_BADLY
)
def adds_no_positions(tokens, token_table, position_table, blocks, norm):
    """The model learns, but what it says of a text depends little on the order
    of its words.
    cause: The table of positions exists, has parameters, and is not added.
    fix: Add the rows of positions 0 … T − 1 to the embeddings.
    hint: What in your logits would change with the order of the words?"""
    x = token_table[tokens]
    for block in blocks:
        x = block(x)
    return norm(x) @ token_table.T


@language_model.mistake(
    "facebookresearch/multimodal #304", symptom=symptoms.TRAINS_BADLY
)
def reads_the_bare_stream(tokens, token_table, position_table, blocks, norm):
    """Everything runs, with logits that grow with each block; training is
    jumpy.
    cause: The blocks are pre-norm: nobody has normalised the stream when it
    leaves the last one.
    fix: Normalise once more before the head.
    hint: What was done last to the stream that your head reads?"""
    x = token_table[tokens] + position_table[: tokens.shape[1]]
    for block in blocks:
        x = block(x)
    return x @ token_table.T


@language_model.mistake(
    "harvardnlp/annotated-transformer #60, rasbt/LLMs-from-scratch #822",
    symptom=(
        symptoms.TRAINS_BADLY,
        symptoms.WRONG_GRADIENTS,
        symptoms.WRONG_COUNT,
    ),
    not_looked_up="harvardnlp/annotated-transformer #60",
)
def ties_a_copy(tokens, token_table, position_table, blocks, norm):
    """The first loss is right. Then the two tables drift apart, and the model
    has V × d_model parameters more than the text says.
    cause: The head starts as a copy of the embeddings. A copy is tied for one
    step.
    fix: Use the same parameter in both places.
    hint: Through how many doors does the gradient come to the table?"""
    head = token_table.detach().clone()
    x = token_table[tokens] + position_table[: tokens.shape[1]]
    for block in blocks:
        x = block(x)
    return norm(x) @ head.T


@language_model.mistake("espnet/espnet #1278", symptom=symptoms.TRAINS_BADLY)
def runs_one_block_again_and_again(
    tokens, token_table, position_table, blocks, norm
):
    """It runs and trains, no better than a model with one block; the others
    never get a gradient.
    cause: The loop counts to n_layers and runs the same block each time.
    fix: Go through the blocks themselves: for block in blocks.
    hint: Which block does your second round run?"""
    x = token_table[tokens] + position_table[: tokens.shape[1]]
    for _ in range(len(blocks)):
        x = blocks[0](x)
    return norm(x) @ token_table.T


def _bigram(vocab_size, seed, dropout=0.0, kind=nn.Sequential):
    """A model that knows the last token only: a table of logits."""
    table = drawn(nn.Embedding(vocab_size, vocab_size), seed=seed)
    return kind(table, nn.Dropout(dropout))


class TwoTexts(nn.Sequential):
    """Layers with room for two texts at a time."""

    def forward(self, tokens):
        if len(tokens) > 2:
            raise ValueError(
                "too many texts at once; expected batches of at most 2; got "
                f"{len(tokens)} texts"
            )
        return super().forward(tokens)


_TOKENS = ints([0, 1, 2], [3, 1, 0], [2, 2, 1])
_TARGETS = ints([1, 2, 0], [1, 0, 3], [2, -100, -100])


@task(
    against="a sum over all targets",
    home="training.mean_loss",
    cases=lambda: {
        "one text": (_bigram(3, 1, 1.0), _TOKENS[:1], _TARGETS[:1]),
        "three texts, two at a time, one of them short": call(
            _bigram(260, 2, 1.0, TwoTexts),
            _TOKENS + 256,
            _TARGETS.where(_TARGETS < 0, _TARGETS + 256),
            batch_size=2,
        ),
        "a model in evaluation mode": (
            _bigram(4, 7, 1.0).eval(),
            _TOKENS,
            _TARGETS,
        ),
        "a text without targets, one at a time": call(
            _bigram(4, 8, 1.0),
            _TOKENS,
            torch.cat([_TARGETS[:2], ints([-100, -100, -100])]),
            batch_size=1,
        ),
        "150 texts, 131 at a time": call(
            _bigram(5, 8, 1.0),
            torch.arange(450).reshape(150, 3) % 5,
            _some_targets(150, 3),
            batch_size=131,
        ),
        "two texts of 131 tokens": (
            _bigram(5, 9, 1.0),
            torch.arange(262).reshape(2, 131) % 5,
            _some_targets(2, 131),
        ),
        "128 texts, 64 at a time": (
            _bigram(5, 9, 1.0),
            torch.arange(384).reshape(128, 3) % 5,
            _some_targets(128, 3),
        ),
    },
)
def mean_loss(model, tokens, targets, *, batch_size=64):
    """the mean loss over all targets of many texts, without dropout, computed
    batch by batch; the model is left in the mode it was in"""
    logs = model[0].weight.detach()[tokens].log_softmax(-1)
    asked = (targets != -100).nonzero().tolist()
    return -sum(logs[b, t, targets[b, t]].item() for b, t in asked) / len(
        asked
    )


@mean_loss.mistake(
    "IBM/pytorch-seq2seq #33, udacity/deep-learning-v2-pytorch #3",
    symptom=(symptoms.OTHER_SCORE, symptoms.DIFFERS_EACH_TIME),
)
def leaves_dropout_on(model, tokens, targets, *, batch_size=64):
    """The held-out loss is too high, and another one each time it is measured.
    cause: The model is still in training mode, in which dropout drops.
    fix: model.eval() before measuring, model.train() after."""
    with torch.no_grad():
        logits = model(tokens)
        return F.cross_entropy(logits.transpose(1, 2), targets).item()


@mean_loss.mistake(
    "macournoyer/neuralconvo #67",
    symptom=(symptoms.OTHER_SCORE, symptoms.WRONG_IN_A_BATCH),
)
def averages_the_batches_means(model, tokens, targets, *, batch_size=64):
    """The held-out loss depends on the batch size.
    cause: Each batch's mean counts alike, though the last batch is smaller and
    some hold more padding.
    fix: Sum the losses and the targets over all batches; divide once."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        pairs = zip(tokens.split(batch_size), targets.split(batch_size))
        means = [F.cross_entropy(model(x).mT, y) for x, y in pairs]
    model.train(was_training)
    return torch.stack(means).mean().item()


@task(
    against="counting pairs",
    cases={
        "one pair of two tokens": ([[0, 1]], 2, 1.0),
        "a text that repeats": ([[0, 1, 0, 1, 1]], 4, 0.5),
        "two texts": ([[3, 0, 257], [257, 257, 257, 3, 1]], 258, 0.01),
        "twenty texts of 131 tokens": (
            [[t * n % 23 for t in range(131)] for n in range(20)],
            23,
            1.0,
        ),
    },
)
def bigram(texts, vocab_size, extra):
    """log p of each token given the one before, (V, V): the pairs counted in
    some texts, with extra added to every count"""
    seen = Counter(pair for text in texts for pair in zip(text, text[1:]))
    numbers = range(vocab_size)
    logs = []
    for a in numbers:
        row = [extra + seen[a, b] for b in numbers]
        total = sum(row)
        logs.append([math.log(n / total) for n in row])
    return torch.tensor(logs, dtype=torch.float64)


@bigram.mistake(symptom=(symptoms.OTHER_SCORE, symptoms.WRONG_SUMS))
def normalises_the_columns(texts, vocab_size, extra):
    """The numbers look like log probabilities, but for a given token they do
    not add up to one.
    cause: The counts are divided by the sums of the columns: how often a token
    comes second, not first.
    fix: Divide each row by its sum: sum(-1, keepdim=True).
    hint: Which of your sums is one, over a row or over a column?"""
    counts = torch.full((vocab_size, vocab_size), extra, dtype=torch.float64)
    for text in texts:
        for first, second in zip(text, text[1:]):
            counts[first, second] += 1
    return (counts / counts.sum(0)).log()


@bigram.mistake(
    "githubharald/CTCWordBeamSearch #33", symptom=symptoms.OTHER_SCORE
)
def counts_across_the_texts(texts, vocab_size, extra):
    """The end of one text is counted as followed by the beginning of the next.
    cause: The texts are strung together before the pairs are counted.
    fix: Count the pairs inside each text.
    hint: How many pairs has a text of T tokens, and how many did you count?"""
    counts = torch.full((vocab_size, vocab_size), extra, dtype=torch.float64)
    line = [token for text in texts for token in text]
    for first, second in zip(line, line[1:]):
        counts[first, second] += 1
    return (counts / counts.sum(-1, keepdim=True)).log()


@task(
    against="torch's AdamW",
    cases={
        "a first step": (*f64([1, -2], [3, 0], [0, 0], [0, 0]), 1, 0.1, 0.0),
        "a third, with decay": (*randn(4, 2, 3, seed=1).abs(), 3, 0.01, 0.5),
        # 0.99¹⁴⁰⁰ is 8e-7: the correction of the squares still counts.
        "a late one": (*randn(4, 5, seed=2).abs(), 1400, 0.1, 0.1),
        "a gradient of 1e-9": (*f64([1], [1e-9], [0], [0]), 1, 0.1, 0.0),
        # The means of the second weight are not 0 yet.
        "a gradient of 0": (*f64([1, 1], [0, 0], [0, 1], [0, 4]), 3, 0.1, 0.5),
        "131 by 137 weights": (
            *randn(4, 131, 137, seed=3).abs(),
            5,
            0.01,
            0.1,
        ),
    },
)
def adamw(w, gradient, mean, square, step, rate, decay):
    """weights after one step of AdamW with the decay rates 0.9 and 0.99 and
    10⁻⁸ beside the root, and the new running means of the gradient and of its
    square; step counts from 1"""
    weight = nn.Parameter(w.clone())
    means = [mean.clone(), square.clone()]
    weight.grad = gradient
    optimizer = torch.optim.AdamW(
        [weight], lr=rate, betas=(0.9, 0.99), weight_decay=decay
    )
    names = ("step", "exp_avg", "exp_avg_sq")
    state = zip(names, (torch.tensor(step - 1.0), *means))
    optimizer.state[weight] = dict(state)
    optimizer.step()
    return weight.detach(), *means


@adamw.mistake("nntrainer/nntrainer #3565", symptom=symptoms.OTHER_SCORE)
def decays_through_the_gradient(w, gradient, mean, square, step, rate, decay):
    """Weights with large gradients hardly decay, whatever the setting says.
    cause: The decay is added to the gradient and divided by its root mean
    square with it: Adam with an L2 penalty, as in torch.optim.Adam.
    fix: Take rate · decay · w off the weights themselves."""
    gradient = gradient + decay * w
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.99 * square + 0.01 * gradient**2
    root = (square / (1 - 0.99**step)).sqrt() + 1e-8
    return w - rate * mean / (1 - 0.9**step) / root, mean, square


def _of_steps(T, *sizes, seed):
    """Gradients of T steps for parameters of some sizes."""
    return [randns(*sizes, seed=seed + 10 * t) for t in range(T)]


def _group(*sizes, seed, **settings):
    """A group of drawn parameters, with settings of its own."""
    return {"params": randns(*sizes, seed=seed), **settings}


_SETTINGS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}
_SETTINGS |= {"weight_decay": 1e-2}


def _as_optimizer(kind, groups, gradients, factors=None, **settings):
    """What a class of the page does to these parameters, step by step."""
    made = as_parameters(groups)
    parameters = [p for group in made for p in group["params"]]
    optimizer = kind(made, **{**_SETTINGS, **settings})
    return stepped(optimizer, parameters, gradients, factors)


@task(
    against="torch.optim.AdamW",
    layer=_as_optimizer,
    cases={
        "one step": call(
            [{"params": [f64([1, -2])]}], [[f64([3, 0.5])]], lr=0.1
        ),
        "three steps": call(
            [_group((2,), seed=100)], _of_steps(3, (2,), seed=110), lr=0.1
        ),
        "a decay of 0.5": call(
            [_group((3,), seed=130)],
            _of_steps(2, (3,), seed=140),
            lr=0.1,
            weight_decay=0.5,
        ),
        "gradients of 1e-9": call(
            [{"params": [f64([1])]}], 2 * [[f64([1e-9])]], lr=0.1
        ),
        "an eps of 0.1": call(
            [_group((3,), seed=150)], _of_steps(2, (3,), seed=160), eps=0.1
        ),
        "other decay rates": call(
            [_group((3,), seed=170)],
            _of_steps(3, (3,), seed=180),
            betas=(0.5, 0.8),
        ),
        "two parameters": call(
            [_group((2, 3), (4,), seed=200)],
            _of_steps(3, (2, 3), (4,), seed=210),
            lr=0.1,
        ),
        "a parameter without gradient in two steps": call(
            [_group((1, 2), (1, 2), seed=240)],
            [
                [f64([1, 2]), None],
                [f64([0, 0]), None],  # this one has a gradient, which is 0
                [f64([1, 1]), f64([3, 1])],
                [None, f64([1, -1])],
            ],
            lr=0.1,
            weight_decay=0.5,
        ),
        "two groups with settings of their own": call(
            [
                _group((3,), seed=250, lr=0.5),
                _group((3,), (2,), seed=260, weight_decay=0.0),
            ],
            _of_steps(3, (3,), (3,), (2,), seed=270),
            lr=0.1,
            weight_decay=0.5,
        ),
        "a rate that changes": call(
            [_group((3,), seed=300)],
            _of_steps(3, (3,), seed=310),
            lr=0.1,
            factors=[0.1, 1.0, 0.5],
        ),
        "forty steps": call(
            [_group((2,), seed=340)], _of_steps(40, (2,), seed=350), lr=0.01
        ),
        # 1 − 0.999¹⁰⁰⁰ is 0.63: the correction is still large then.
        "1,010 steps": call([{"params": [f64([1])]}], 1010 * [[f64([0.5])]]),
        "17 groups, each with a rate of its own": call(
            [_group((2,), seed=400 + n, lr=0.01 * (n + 1)) for n in range(17)],
            _of_steps(3, *[(2,)] * 17, seed=450),
        ),
        "17 parameters, the last of 131 by 137": call(
            [_group(*[(1, 2)] * 16, (131, 137), seed=500)],
            _of_steps(2, *[(1, 2)] * 16, (131, 137), seed=550),
            lr=0.1,
        ),
    },
)
def AdamW(
    groups,
    gradients,
    lr=1e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=1e-2,
    factors=None,
):
    """the parameters after each step of AdamW, whose groups have settings of
    their own where these are named; a parameter without a gradient stays as
    it is, and so does its state; `factors` are what the rates of all groups
    are multiplied by, step by step"""
    settings = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    kind = torch.optim.AdamW
    return _as_optimizer(kind, groups, gradients, factors, **settings)


def _by_rule(rule, groups, gradients, factors=None, **settings):
    """The parameters after each step, each of them moved by a rule.

    The rule gets a weight, its gradient or None, the state of this weight, a
    dictionary, and the settings of its group. It gives the new weight.
    """
    rows = [
        [w.clone(), {}, {**_SETTINGS, **settings, **group}]
        for group in groups
        for w in group["params"]
    ]
    found = {}
    for n, those in enumerate(gradients):
        factor = 1.0 if factors is None else factors[n]
        for row, gradient in zip(rows, those):
            w, state, group = row
            now = {**group, "rate": group["lr"] * factor}
            row[0] = rule(w, gradient, state, now)
        found[f"step {n + 1}"] = [w.clone() for w, _, _ in rows]
    return found


def _means(gradient, state, betas):
    """The running means of a gradient and of its square, kept in a state."""
    for name, beta, new in zip(
        ("mean", "square"), betas, (gradient, gradient**2)
    ):
        state[name] = beta * state.get(name, 0.0) + (1 - beta) * new
    return state["mean"], state["square"]


def _one_step(w, gradient, state, group, *, step):
    """A weight after one right step, which has the number `step`."""
    first, second = group["betas"]
    mean, square = _means(gradient, state, group["betas"])
    w = w * (1 - group["rate"] * group["weight_decay"])
    root = (square / (1 - second**step)).sqrt() + group["eps"]
    return w - group["rate"] * mean / (1 - first**step) / root


@AdamW.mistake(
    "DiffSharp/DiffSharp #292, flashlight/flashlight #143",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def counts_each_parameter_as_a_step(
    groups, gradients, factors=None, **settings
):
    """Right with one parameter. With many, all but the first begin with steps
    that are much too small, as if training had gone on for long.
    cause: The number of the step, on which the correction of the running
    means hangs, goes up for each parameter and not for each step.
    fix: Count once for each call of `step`, or for each parameter by itself.
    """
    count = itertools.count(1)

    def rule(w, gradient, state, group):
        if gradient is None:
            return w
        return _one_step(w, gradient, state, group, step=next(count))

    return _by_rule(rule, groups, gradients, factors, **settings)


@AdamW.mistake(
    "deepspeedai/DeepSpeed #8471", symptom=symptoms.WRONG_IN_THE_NEXT_CASE
)
def counts_steps_without_a_gradient(
    groups, gradients, factors=None, **settings
):
    """All is right as long as each parameter has a gradient in each step.
    One that joins later, such as an expert or a layer that was frozen, begins
    with a step that is too small.
    cause: There is one count of steps for all parameters. The running means
    of the late one began at 0 just now, and are corrected as if long ago.
    fix: Keep the count in the state of each parameter."""

    def rule(w, gradient, state, group):
        state["step"] = state.get("step", 0) + 1
        if gradient is None:
            return w
        return _one_step(w, gradient, state, group, step=state["step"])

    return _by_rule(rule, groups, gradients, factors, **settings)


@AdamW.mistake("KellerJordan/Muon #54", symptom=symptoms.TRAINS_BADLY)
def decays_without_a_gradient(groups, gradients, factors=None, **settings):
    """Parameters that took no part in a step shrink all the same: experts
    that nobody chose, layers that were frozen.
    cause: The decay comes before the question whether there is a gradient.
    fix: Leave out a parameter whose `grad` is None before anything is done
    to it."""

    def rule(w, gradient, state, group):
        if gradient is None:
            return w * (1 - group["rate"] * group["weight_decay"])
        state["step"] = state.get("step", 0) + 1
        return _one_step(w, gradient, state, group, step=state["step"])

    return _by_rule(rule, groups, gradients, factors, **settings)


@AdamW.mistake(
    "LiyuanLucasLiu/RAdam #24, jettify/pytorch-optimizer #96",
    symptom=(symptoms.TRAINS_BADLY, symptoms.WRONG_IN_THE_NEXT_CASE),
)
def takes_the_first_groups_settings(
    groups, gradients, factors=None, **settings
):
    """With one group all is right. With several, all learn at the rate of the
    first, and what was to be left out of the decay is not.
    cause: The settings, or a step size made of them, are looked up once, in
    the first group, or are kept for all groups.
    fix: Read the settings from `group` within the loop over groups."""
    first = {name: x for name, x in groups[0].items() if name != "params"}
    all_alike = [{"params": group["params"], **first} for group in groups]
    return AdamW.right(all_alike, gradients, factors=factors, **settings)


@AdamW.mistake("ooples/AiDotNet #1470", symptom=symptoms.TRAINS_BADLY)
def keeps_the_first_rate(groups, gradients, factors=None, **settings):
    """A schedule of the learning rate has no effect: no warm-up, no decay.
    cause: The rate is kept by the optimizer when it is made, or built into a
    compiled step. A schedule changes the one in `param_groups`.
    fix: Read `group["lr"]` in each step."""
    return AdamW.right(groups, gradients, **settings)


@AdamW.mistake("nntrainer/nntrainer #3565", symptom=symptoms.OTHER_SCORE)
def decays_along_with_the_gradient(
    groups, gradients, factors=None, **settings
):
    """Weights with large gradients hardly decay, whatever the setting says.
    cause: The decay is added to the gradient, and is divided by the root of
    the mean square with it: this is Adam with an L2 penalty.
    fix: Take rate · decay · weight off the weights themselves."""
    adam = torch.optim.Adam
    return _as_optimizer(adam, groups, gradients, factors, **settings)


@AdamW.mistake("huggingface/transformers #14539", symptom=symptoms.OTHER_SCORE)
def decays_what_has_moved(groups, gradients, factors=None, **settings):
    """The weights differ from those of torch by the decay of one step's
    movement, which is too little to be seen in a loss.
    cause: The decay is taken from the weights that have already moved.
    fix: Take it from the weights before the step, as in the paper."""

    def rule(w, gradient, state, group):
        if gradient is None:
            return w
        state["step"] = state.get("step", 0) + 1
        still = {**group, "weight_decay": 0.0}
        w = _one_step(w, gradient, state, still, step=state["step"])
        return w * (1 - group["rate"] * group["weight_decay"])

    return _by_rule(rule, groups, gradients, factors, **settings)


@AdamW.mistake("aiqm/torchani #261", symptom=symptoms.OTHER_SCORE)
def corrects_the_eps_too(groups, gradients, factors=None, **settings):
    """Only where gradients are about as small as the eps, or in the first
    steps with a large eps, are the steps larger than those of torch.
    cause: The corrections are put into the rate, √(1 − β₂ᵗ) / (1 − β₁ᵗ). So
    the root beside which the eps stands has not been corrected.
    fix: Correct the mean of the squares, take its root, then add the eps."""

    def rule(w, gradient, state, group):
        if gradient is None:
            return w
        state["step"] = state.get("step", 0) + 1
        first, second = (1 - beta ** state["step"] for beta in group["betas"])
        mean, square = _means(gradient, state, group["betas"])
        w = w * (1 - group["rate"] * group["weight_decay"])
        rate = group["rate"] * math.sqrt(second) / first
        return w - rate * mean / (square.sqrt() + group["eps"])

    return _by_rule(rule, groups, gradients, factors, **settings)


@AdamW.mistake("ml-explore/mlx #1640", symptom=symptoms.TRAINS_BADLY)
def leaves_the_means_uncorrected(groups, gradients, factors=None, **settings):
    """The first steps are about three times too large, and training may never
    recover from them.
    cause: The running means begin at 0 and are taken as they are. That of the
    gradient is a tenth of it then, the root of that of the square 3 %.
    fix: Divide each mean by 1 − βᵗ before it is used."""

    def rule(w, gradient, state, group):
        if gradient is None:
            return w
        mean, square = _means(gradient, state, group["betas"])
        w = w * (1 - group["rate"] * group["weight_decay"])
        return w - group["rate"] * mean / (square.sqrt() + group["eps"])

    return _by_rule(rule, groups, gradients, factors, **settings)


_ROWS = [*zip(_TOKENS.split(1), _TARGETS.split(1))]
# Shares of the targets that a float32 holds: quarters and eighths.
_EIGHT = _ROWS + _ROWS[2:] + 2 * [_ROWS[2], _ROWS[0]]
_FEWER = _ROWS + 5 * _ROWS[2:]  # eight targets, then four
# A wrong word was sure: the gradient is longer than 1.
_STEEP = [(ints([0, 0]), ints([1, 1]))] * 2


class SmallMemory(nn.Sequential):
    """Layers with room for one small batch until its backward has come."""

    full = False

    def forward(self, tokens):
        if self.full or tokens.numel() > 2:
            raise ValueError("two small batches in a memory for one")
        logits = super().forward(tokens)
        self.full = logits.requires_grad
        if self.full:
            logits.register_hook(lambda _: setattr(self, "full", False))
        return logits


def _sure(vocab_size):
    """A model that is very sure of one of its logits."""
    model = SmallMemory(*_bigram(vocab_size, 4))
    model[0].weight.data[0, 0] = 9
    return model


def _used(vocab_size, seed):
    """A model that has gradients already, which must not be counted again."""
    model = _bigram(vocab_size, seed)
    model(_TOKENS).sum().backward()  # gradients that count for nothing
    return model


@task(
    against="a step of torch's SGD on the large batch",
    cases=lambda: {
        "two of three targets": (_bigram(4, 1), _ROWS[:2], 2, 1.0),
        "of three and of one": (_bigram(4, 2), _ROWS[1:], 2, 1.0),
        "two steps of four": (_bigram(4, 3), _FEWER, 4, 0.5),
        "a steep loss": (_sure(4), _STEEP, 2, 0.5),
        "a model with old gradients": (_used(4, 5), _EIGHT, 4, 0.5),
        "one step of sixteen": (_bigram(4, 6), 2 * _EIGHT, 16, 0.5),
        "one step of 33": (_bigram(4, 7), 11 * _ROWS, 33, 0.5),
        "two batches of 17 texts of 131 tokens": (
            _bigram(5, 8),
            2
            * [
                (
                    torch.arange(17 * 131).reshape(17, 131) % 5,
                    _some_targets(17, 131),
                )
            ],
            2,
            0.5,
        ),
    },
)
def accumulate(model, batches, n, rate):
    """the model's parameters, a list, after plain gradient descent with a step
    after every n small batches, on the gradient of the mean loss over all
    their targets together"""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for start in range(0, len(batches), n):
        some = zip(*batches[start : start + n])
        tokens, targets = (torch.cat([x.flatten() for x in xs]) for xs in some)
        optimizer.zero_grad()
        F.cross_entropy(nn.Sequential(*model)(tokens), targets).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@accumulate.mistake(
    "rasbt/LLMs-from-scratch #299", symptom=symptoms.TRAINS_BADLY
)
def steps_at_once_and_sums(model, batches, n, rate):
    """The first step comes after one small batch, and each is n times as long
    as it should be.
    cause: The step is made where i % n == 0, which is so for i = 0, and the
    losses are added up without being divided.
    fix: Step where (i + 1) % n == 0, and weight each small batch by its share
    of the targets.
    hint: How many small batches are in your first step?"""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer.zero_grad()
    for i, (tokens, targets) in enumerate(batches):
        F.cross_entropy(model(tokens).mT, targets).backward()
        if i % n == 0:
            optimizer.step()
            optimizer.zero_grad()
    return list(model.parameters())


@accumulate.mistake(
    "huggingface/transformers #24725, karpathy/nanochat #59",
    symptom=symptoms.TRAINS_BADLY,
)
def averages_small_batches_alike(model, batches, n, rate):
    """Training is a little worse than with one large batch, though it should
    be the same; the more the texts differ in length, the more so.
    cause: The small batches count alike, though some have more targets: the
    mean of the means.
    fix: Weight each by its number of targets.
    hint: Which average is this, and what are its weights?"""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for i, (tokens, targets) in enumerate(batches):
        if i % n == 0:
            optimizer.zero_grad()
        (F.cross_entropy(model(tokens).mT, targets) / n).backward()
        if (i + 1) % n == 0:
            optimizer.step()
    return list(model.parameters())
