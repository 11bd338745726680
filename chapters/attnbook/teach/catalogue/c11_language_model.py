"""Chapter 11, a small language model: tasks and known mistakes."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from attnbook.teach.inputs import drawn, f64, ints, randns
from attnbook.teach.proof import call
from attnbook.teach.seeded import randn
from attnbook.teach.tasks import task


@task(
    against="slices of lists",
    cases={
        "three tokens": ([[5, 6, 7]], 0),
        "two texts, one shorter": ([[1, 2, 3, 4], [5, 6]], 0),
        "another padding": ([[3, 9], [4, 4, 8, 4, 4], [1, 2, 1]], 7),
    },
)
def shifted(texts, pad):
    """tokens and targets of some texts, (B, T) both, T one less than the
    longest: each text without its last token, padded with pad; and without its
    first, padded with −100"""
    T = max(len(text) for text in texts) - 1
    tokens, targets = [], []
    for text in texts:
        spare = T + 1 - len(text)
        tokens.append(text[:-1] + [pad] * spare)
        targets.append(text[1:] + [-100] * spare)
    return torch.tensor(tokens), torch.tensor(targets)


@shifted.mistake("songlab-cal/tape #32")
def asks_for_the_token_itself(texts, pad):
    """The loss falls to nearly zero within minutes, and the model writes one
    word for ever: it has learned to repeat its input.
    cause: The targets are the tokens themselves, one place too early. The mask
    hides the future, but a token may always see itself.
    fix: The target of token t is token t + 1."""
    T = max(len(text) for text in texts) - 1
    tokens = torch.full((len(texts), T), pad)
    targets = torch.full((len(texts), T), -100)
    for b, text in enumerate(texts):
        tokens[b, : len(text) - 1] = torch.tensor(text[:-1])
        targets[b, : len(text) - 1] = torch.tensor(text[:-1])
    return tokens, targets


@shifted.mistake("huggingface/transformers #44642, InternLM/InternLM #318")
def shifts_twice(texts, pad):
    """The loss falls, but not far. Asked to write, the model leaves out every
    other word.
    cause: The shift is done twice, in the data and again in the loss, so that
    the model is asked for the word after the next.
    fix: Shift in one place; know whether your library's loss does it."""
    T = max(len(text) for text in texts) - 1
    tokens = torch.full((len(texts), T), pad)
    targets = torch.full((len(texts), T), -100)
    for b, text in enumerate(texts):
        tokens[b, : len(text) - 1] = torch.tensor(text[:-1])
        targets[b, : len(text) - 2] = torch.tensor(text[2:])
    return tokens, targets


@shifted.mistake("lucidrains/DALLE-pytorch #57, EleutherAI/gpt-neo #45")
def asks_for_the_padding(texts, pad):
    """The loss looks better the more padding there is, and the model is good
    at one thing: after the end comes padding.
    cause: The targets are padded with the number of the padding token, an
    answer like any other, instead of one that the loss leaves out.
    fix: Pad the targets with −100, which the loss does not count."""
    T = max(len(text) for text in texts) - 1
    tokens = torch.full((len(texts), T), pad)
    targets = torch.full((len(texts), T), pad)
    for b, text in enumerate(texts):
        tokens[b, : len(text) - 1] = torch.tensor(text[:-1])
        targets[b, : len(text) - 1] = torch.tensor(text[1:])
    return tokens, targets


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
            300 * randn(3, 3, 4, seed=2),
            ints([-100, -100, 1], [0, 2, 2], [-100, 0, -100]),
        ),
    },
)
def cross_entropy(logits, targets):
    """the mean of −log p of the targets, in nats, over the targets that are
    not −100: one number from logits (B, T, V) and targets (B, T)"""
    return F.cross_entropy(logits.transpose(1, 2), targets)


@cross_entropy.mistake(
    "Lightning-Universe/lightning-bolts #654, tflearn/tflearn #562"
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


@cross_entropy.mistake("karpathy/nanochat #59")
def divides_by_all_places(logits, targets):
    """The loss of a batch with much padding looks small, though no word was
    guessed better.
    cause: The sum over the real targets is divided by all places of the batch,
    the padded ones included.
    fix: Divide by the number of targets that are asked for."""
    losses = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="none"
    )
    return losses.mean()


@cross_entropy.mistake(
    "huggingface/transformers #24725, meta-pytorch/torchtune #1875"
)
def averages_the_texts_means(logits, targets):
    """A word of a short text counts more than one of a long text, and the loss
    changes when the same texts are batched otherwise.
    cause: A mean for each text first, then the mean of these means: a weighted
    average with other weights than intended.
    fix: Add up all losses, and divide once."""
    losses = F.cross_entropy(
        logits.transpose(1, 2), targets, reduction="none"
    )  # (B, T)
    return (losses.sum(-1) / (targets != -100).sum(-1)).mean()


def _texts(*lengths, seed):
    return [-text.abs() for text in randns(*zip(lengths), seed=seed)]


@task(
    against="a sum over all words",
    cases={
        "one word of four": ([torch.tensor([0.25]).log()],),
        "two texts of the same length": (_texts(3, 3, seed=1),),
        "one short, one long": (_texts(1, 6, seed=2),),
    },
)
def perplexity(texts):
    """the perplexity of a list of texts: exp of the mean of −log p over all
    their words; each text is given as the log p of its words, in nats, (T,)"""
    flat = [log for text in texts for log in text.tolist()]
    return math.exp(-math.fsum(flat) / len(flat))


@perplexity.mistake("huggingface/evaluate #241")
def raises_two_to_the_nats(texts):
    """The perplexity is far too good: 2.6 where it should be 4.
    cause: A loss in nats (natural logarithm) is raised as if it were in bits
    (logarithm of base 2).
    fix: The base of the power is the base of the logarithm: exp for nats, 2 **
    for bits."""
    return 2 ** -torch.cat(list(texts)).mean()


@perplexity.mistake("lisa-lab/pylearn2 #1383")
def averages_perplexities(texts):
    """The number looks plausible and is too large, the more so the more the
    texts differ.
    cause: A perplexity is taken of each text, and these are averaged. But the
    mean of powers is not the power of the mean.
    fix: Average the losses over all words first, then take exp once."""
    return torch.stack([(-text.mean()).exp() for text in texts]).mean()


@task(
    against="the types of the defaults",
    cases={
        "one whole number": ({"d_model": "64"}, {"d_model": 768}),
        "a dropout": ({"dropout": "0.1"}, {"dropout": 0.0}),
        "several, not all given": (
            {"n_heads": "4", "dropout": "0.25"},
            {"n_heads": 12, "dropout": 0.1, "context": 32},
        ),
    },
)
def read_options(given, defaults):
    """the options as numbers: each value, a text, converted to the type of the
    default of that name"""
    read = dict(defaults)
    for name, value in given.items():
        read[name] = type(defaults[name])(value)
    return read


@read_options.mistake()
def reads_every_number_as_int(given, defaults):
    """Nothing fails. Dropout 0.1 becomes 0: the model trains without any, and
    overfits as if the setting did nothing.
    cause: The configuration says dropout: int, and a reader of options
    believes it. A probability below 1, rounded down, is 0.
    fix: Declare a probability as float, and let no conversion round."""
    return defaults | {n: int(float(value)) for n, value in given.items()}


class Parts(list):
    """The blocks of a torch encoder; `encoder` is all of it."""


def _model(vocab_size, d_model, n_layers, seed):
    layer = nn.TransformerEncoderLayer(
        d_model, 2, 2 * d_model, dropout=0.0, batch_first=True, norm_first=True
    )
    encoder = nn.TransformerEncoder(
        layer, n_layers, nn.LayerNorm(d_model), enable_nested_tensor=False
    )
    encoder = drawn(encoder, seed=seed).requires_grad_(False)
    blocks = Parts(encoder.layers)
    blocks.encoder = encoder
    tokens, positions = randns((vocab_size, d_model), (8, d_model), seed=seed)
    return tokens, positions, blocks, encoder.norm


@task(
    against="torch's TransformerEncoder",
    gradients=True,
    cases=lambda: {
        "two tokens, one block": (ints([1, 1]), *_model(3, 4, 1, seed=1)),
        "two blocks": (ints([0, 2, 4, 2]), *_model(5, 6, 2, seed=2)),
        "two texts": (ints([3, 0, 1], [6, 6, 2]), *_model(7, 4, 3, seed=3)),
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


@language_model.mistake("guocheng2025/Transformer-Encoder #1")
def adds_no_positions(tokens, token_table, position_table, blocks, norm):
    """The model learns, but what it says of a text depends little on the order
    of its words.
    cause: The table of positions exists, has parameters, and is not added.
    fix: Add the rows of positions 0 … T − 1 to the embeddings."""
    x = token_table[tokens]
    for block in blocks:
        x = block(x)
    return norm(x) @ token_table.T


@language_model.mistake("facebookresearch/multimodal #304")
def reads_the_bare_stream(tokens, token_table, position_table, blocks, norm):
    """Everything runs, with logits that grow with each block; training is
    jumpy.
    cause: The blocks are pre-norm: nobody has normalised the stream when it
    leaves the last one.
    fix: Normalise once more before the head."""
    x = token_table[tokens] + position_table[: tokens.shape[1]]
    for block in blocks:
        x = block(x)
    return x @ token_table.T


@language_model.mistake(
    "harvardnlp/annotated-transformer #60, rasbt/LLMs-from-scratch #822"
)
def ties_a_copy(tokens, token_table, position_table, blocks, norm):
    """The first loss is right. Then the two tables drift apart, and the model
    has V × d_model parameters more than the text says.
    cause: The head starts as a copy of the embeddings. A copy is tied for one
    step.
    fix: Use the same parameter in both places."""
    head = token_table.detach().clone()
    x = token_table[tokens] + position_table[: tokens.shape[1]]
    for block in blocks:
        x = block(x)
    return norm(x) @ head.T


@language_model.mistake("espnet/espnet #1278")
def runs_one_block_again_and_again(
    tokens, token_table, position_table, blocks, norm
):
    """It runs and trains, no better than a model with one block; the others
    never get a gradient.
    cause: The loop counts to n_layers and runs the same block each time.
    fix: Go through the blocks themselves: for block in blocks."""
    x = token_table[tokens] + position_table[: tokens.shape[1]]
    for _ in range(len(blocks)):
        x = blocks[0](x)
    return norm(x) @ token_table.T


@task(
    against="torch's layers, counted",
    cases={
        "as small as can be": (1, 1, 1, 1),
        "two blocks": (50, 16, 8, 2),
        "GPT-2 small": (50_257, 1024, 768, 12),
    },
)
def parameter_count(vocab_size, context, d_model, n_layers):
    """how many numbers a GPT with a learned table of positions, biases, and a
    tied head learns"""
    with torch.device("meta"):  # sizes without numbers
        layer = nn.TransformerEncoderLayer(d_model, 1, 4 * d_model)
        parts = [
            nn.Embedding(vocab_size, d_model),
            nn.Embedding(context, d_model),
            nn.LayerNorm(d_model),
        ]
    in_block = sum(p.numel() for p in layer.parameters())
    around = sum(p.numel() for part in parts for p in part.parameters())
    return n_layers * in_block + around


@parameter_count.mistake("rasbt/LLMs-from-scratch #822")
def counts_the_head_too(vocab_size, context, d_model, n_layers):
    """GPT-2 small comes out with 163 million parameters instead of 124
    million.
    cause: The head is counted though it is tied, or it is tied in the text and
    not in the code.
    fix: A tied head learns nothing of its own: count the table once."""
    block = 12 * d_model**2 + 13 * d_model
    tables = (2 * vocab_size + context) * d_model
    return n_layers * block + tables + 2 * d_model


class Table(nn.Module):
    """A model for tests: logits from a table; all dropped in training."""

    def __init__(self, vocab_size, seed):
        super().__init__()
        self.table = nn.Parameter(randn(vocab_size, vocab_size, seed=seed))

    def forward(self, tokens):
        return F.dropout(self.table[tokens], 1.0, self.training)


_TOKENS = ints([0, 1, 2], [3, 1, 0], [2, 2, 1])
_TARGETS = ints([1, 2, 0], [1, 0, 3], [2, -100, -100])


@task(
    against="a sum over all targets",
    home="training.mean_loss",
    cases=lambda: {
        "one text": (Table(3, 1), _TOKENS[:1], _TARGETS[:1]),
        "three texts, two at a time, one of them short": call(
            Table(4, 2), _TOKENS, _TARGETS, batch_size=2
        ),
    },
)
def mean_loss(model, tokens, targets, *, batch_size=64):
    """the mean loss over all targets of many texts, without dropout, computed
    batch by batch; the model is left in the mode it was in"""
    logs = model.table.detach()[tokens].log_softmax(-1)
    asked = (targets != -100).nonzero().tolist()
    return -sum(logs[b, t, targets[b, t]].item() for b, t in asked) / len(
        asked
    )


@mean_loss.mistake(
    "IBM/pytorch-seq2seq #33, udacity/deep-learning-v2-pytorch #3"
)
def leaves_dropout_on(model, tokens, targets, *, batch_size=64):
    """The held-out loss is too high, and another one each time it is measured.
    cause: The model is still in training mode, in which dropout drops.
    fix: model.eval() before measuring, model.train() after."""
    with torch.no_grad():
        logits = model(tokens)
        return F.cross_entropy(logits.transpose(1, 2), targets).item()


@mean_loss.mistake("macournoyer/neuralconvo #67")
def averages_the_batches_means(model, tokens, targets, *, batch_size=64):
    """The held-out loss depends on the batch size.
    cause: Each batch's mean counts alike, though the last batch is smaller and
    some hold more padding.
    fix: Sum the losses and the targets over all batches; divide once."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        means = [
            F.cross_entropy(model(some).transpose(1, 2), theirs)
            for some, theirs in zip(
                tokens.split(batch_size), targets.split(batch_size)
            )
        ]
    model.train(was_training)
    return torch.stack(means).mean().item()


@task(
    against="math.log2, word by word",
    cases={
        "one of two characters": (f64(0.5).log(), "a"),
        "two words of three letters": (f64(0.25, 0.125).log(), "the mill"),
        "letters beyond ASCII": (-randn(3, seed=1).abs(), "où es-tu"),
    },
)
def bits_per_character(log_probabilities, text):
    """the bits that a model spends on a character of a text, from the log p of
    its tokens in nats, (N,), and the text"""
    bits = [-math.log2(math.exp(log)) for log in log_probabilities.tolist()]
    return math.fsum(bits) / len(text)


@bits_per_character.mistake("huggingface/evaluate #241")
def reports_nats_as_bits(log_probabilities, text):
    """The number is too small by a factor of 0.693.
    cause: Nats are reported as bits: a natural logarithm was not divided by ln
    2.
    fix: Divide the nats by ln 2, about 0.693.
    hint: How many bits does one choice between two equals cost?"""
    return -log_probabilities.sum().item() / len(text)


@bits_per_character.mistake()
def divides_by_the_tokens(log_probabilities, text):
    """A model of words seems far worse than one of characters, whatever it has
    learned.
    cause: The bits are divided by the number of tokens, and a token is a word
    here and a character there.
    fix: Divide by what is the same for both, the length of the text.
    hint: By what do you divide, and would another tokenizer change it?"""
    return -log_probabilities.mean().item() / math.log(2)


@task(
    against="counting pairs",
    cases={
        "one pair of two tokens": ([[0, 1]], 2, 1.0),
        "a text that repeats": ([[0, 1, 0, 1, 1]], 3, 0.5),
        "two texts": ([[3, 0, 2], [2, 2, 3, 1]], 4, 0.01),
    },
)
def bigram(texts, vocab_size, extra):
    """log p of each token given the one before, (V, V): the pairs counted in
    some texts, with extra added to every count"""
    rows = []
    for first in range(vocab_size):
        row = [
            extra
            + sum(
                list(pair) == [first, second]
                for text in texts
                for pair in zip(text[:-1], text[1:])
            )
            for second in range(vocab_size)
        ]
        rows.append([math.log(n / sum(row)) for n in row])
    return torch.tensor(rows, dtype=torch.float64)


@bigram.mistake()
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


@bigram.mistake("EleutherAI/gpt-neox #1193")
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
    against="a loop over targets",
    cases={
        "two small batches of two targets": (f64([3], [6]), [2, 2], 2),
        "of one and of three targets": (f64([3], [6]), [1, 3], 2),
        "three a step": (randn(6, 4, seed=1), [5, 2, 9, 1, 1, 4], 3),
    },
)
def accumulate(gradients, targets, n):
    """the gradients of the steps, (M / n, P): that of the mean loss over n
    small batches at a time, from the gradients of their mean losses, (M, P),
    and from their numbers of targets"""
    steps = []
    for start in range(0, len(targets), n):
        total = sum(targets[start : start + n])
        steps.append(
            sum(
                gradients[m] * targets[m] / total
                for m in range(start, start + n)
            )
        )
    return torch.stack(steps)


@accumulate.mistake("rasbt/LLMs-from-scratch #299")
def steps_at_once_and_sums(gradients, targets, n):
    """The first step comes after one small batch, and each is n times as long
    as it should be.
    cause: The step is made where i % n == 0, which is so for i = 0, and the
    losses are added up without being divided.
    fix: Step where (i + 1) % n == 0, and weight each small batch by its share
    of the targets.
    hint: How many small batches are in your first step?"""
    steps, total = [], torch.zeros_like(gradients[0])
    for i in range(len(targets)):
        total = total + gradients[i]
        if i % n == 0:
            steps.append(total)
            total = torch.zeros_like(total)
    return torch.stack(steps)


@accumulate.mistake("huggingface/transformers #24725, karpathy/nanochat #59")
def averages_small_batches_alike(gradients, targets, n):
    """Training is a little worse than with one large batch, though it should
    be the same; the more the texts differ in length, the more so.
    cause: The small batches count alike, though some have more targets: the
    mean of the means.
    fix: Weight each by its number of targets.
    hint: Which average is this, and what are its weights?"""
    return gradients.reshape(-1, n, gradients.shape[-1]).mean(1)
