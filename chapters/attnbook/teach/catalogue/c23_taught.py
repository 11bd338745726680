"""Chapter 23, taught by example and by reward: tasks and known mistakes."""

import torch

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, ints, marks, randns
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(23)

NO = -100


@task(
    against="a walk over the tokens",
    cases={
        "one token each": (ints(7), ints(5)),
        "a prompt of three": (ints(7, 8, 9), ints(5, 2)),
        "a prompt of one": (ints(7), ints(4, 5, 2)),
        "an answer that repeats the prompt": (ints(7, 8), ints(7, 8, 2)),
        "a long answer": (ints(1, 3), ints(*range(250, 262), 2)),
        "a token 0": (ints(0, 4, 0), ints(0, 2)),
        "a prompt of 131, an answer of 300": (
            torch.arange(131),
            torch.arange(7, 307),
        ),
        "a prompt of 64, an answer of 64": (
            torch.arange(64),
            torch.arange(7, 71),
        ),
    },
)
def answer_targets(prompt, answer):
    """the targets (P + A − 1,) at the tokens of a prompt (P,) and its answer
    (A,) without their last one: at each the next token if that belongs to
    the answer, else −100"""
    text = torch.cat([prompt, answer])
    found = []
    for t in range(len(text) - 1):
        following = t + 1
        found.append(int(text[following]) if following >= len(prompt) else NO)
    return torch.tensor(found)


@answer_targets.mistake(
    "karpathy/nanochat #570, karpathy/nanochat #582, "
    "NVIDIA-NeMo/Megatron-Bridge #3359",
    symptom=(symptoms.OTHER_SCORE, symptoms.TRAINS_BADLY),
)
def counts_the_prompt_too(prompt, answer):
    """The loss falls as it should, and nothing warns. The model learns to
    write questions as well, and its loss is not that of others.
    cause: The mask of the prompts got lost on the way, or was replaced by one
    that is 1 everywhere.
    fix: −100 at every target that belongs to the prompt; count the targets
    that are left.
    hint: Should the model learn to write the question, too?"""
    return torch.cat([prompt, answer])[1:]


@answer_targets.mistake(
    "verl-project/verl #3287, OpenRLHF/OpenRLHF #973, "
    "NVIDIA-NeMo/Speech #6409",
    symptom=(symptoms.BAD_TEXT, symptoms.OTHER_SCORE),
)
def silences_the_first_word(prompt, answer):
    """Answers may begin with a wrong word, and go on well.
    cause: The mask has the length of the prompt and is laid over targets,
    which are one place earlier than tokens.
    fix: Only the first P − 1 targets are −100: the prompt's last token
    predicts the answer's first.
    hint: Which token predicts the first token of the answer?"""
    targets = torch.cat([prompt, answer])[1:]
    targets[: len(prompt)] = NO
    return targets


@answer_targets.mistake(
    "verl-project/verl #3562, huggingface/trl #1623",
    symptom=symptoms.BAD_TEXT,
)
def silences_the_end(prompt, answer):
    """The trained model answers well and does not stop.
    cause: The answer's last token, which ends a text, is no target: the mask
    is moved by one, or the token was never appended.
    fix: The end token is a part of the answer, and counts.
    hint: From what shall the model learn where an answer ends?"""
    targets = answer_targets.right(prompt, answer).clone()
    targets[-1] = NO
    return targets


@answer_targets.mistake(symptom=symptoms.LOSS_TOO_LOW)
def predicts_what_is_there(prompt, answer):
    """The loss is nearly 0 after a few steps, and the answers are nonsense.
    cause: The targets are the tokens themselves, and not the next ones.
    fix: The target at token t is token t + 1.
    hint: What does your model have to say at a token: this one, or the
    next?"""
    tokens = torch.cat([prompt, answer])[:-1].clone()
    tokens[: len(prompt) - 1] = NO
    return tokens


def adapted(d_out, d_in, r, *, alpha, seed):
    """A weight and a bias, an adapter with a bias, and its alpha."""
    parts = randns(
        (d_out, d_in), (d_out,), (r, d_in), (d_out, r), (d_out,), seed=seed
    )
    return call(*parts, alpha=alpha)


@task(
    against="what both compute for the unit vectors",
    cases={
        "rank 1, alpha 1": adapted(2, 2, 1, alpha=1, seed=1),
        "rank 1, alpha 2": adapted(2, 2, 1, alpha=2, seed=11),
        "rank 2, alpha 1": adapted(2, 3, 2, alpha=1, seed=21),
        "rank 2, alpha 16": adapted(3, 2, 2, alpha=16, seed=31),
        "rank 4, alpha 4": adapted(5, 6, 4, alpha=4, seed=41),
        "rank 3, alpha 8": adapted(4, 7, 3, alpha=8, seed=51),
        "all wider than 128, alpha 300": adapted(
            130, 131, 132, alpha=300, seed=61
        ),
    },
)
def merged(weight, bias, down, up, up_bias, *, alpha):
    """the weight (d_out, d_in) and the bias (d_out,) of one linear layer that
    computes what a layer and its adapter compute together: x Wᵀ + b and α/r
    times (x downᵀ upᵀ + c); down is (r, d_in), up (d_out, r), c = up_bias
    (d_out,)"""
    r, d_in = down.shape

    def both(x):
        return weight @ x + bias + (up @ (down @ x) + up_bias) * alpha / r

    at_zero = both(weight.new_zeros(d_in))
    units = torch.eye(d_in, dtype=weight.dtype)
    return torch.stack([both(x) - at_zero for x in units], -1), at_zero


@merged.mistake(
    "huggingface/peft #2489, huggingface/peft #3741, huggingface/peft #3757",
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.LOADED_WEIGHTS),
)
def merges_the_bias_unscaled(weight, bias, down, up, up_bias, *, alpha):
    """Right wherever alpha is the rank, as in the tests of a large library.
    Elsewhere the merged model answers otherwise than the one that was
    trained.
    cause: The matrix is multiplied by α / r, the adapter's bias is not.
    fix: Everything that the adapter adds gets the factor; test with an alpha
    that is not the rank.
    hint: Is the adapter's bias inside the bracket, or outside?"""
    r = len(down)
    return weight + alpha / r * up @ down, bias + up_bias


@merged.mistake(
    "hao-ai-lab/FastVideo #870",
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.LOADED_WEIGHTS),
)
def merges_without_the_factor(weight, bias, down, up, up_bias, *, alpha):
    """Right wherever alpha is the rank; else the change is too weak or too
    strong once it is merged, though the training was good.
    cause: up · down is added as it is.
    fix: Multiply it by α / r, as in the forward pass.
    hint: By which factor was the adapter's result multiplied in training?"""
    return weight + up @ down, bias + up_bias


@merged.mistake(
    "Blaizzy/mlx-vlm #841, rasbt/LLMs-from-scratch #821",
    symptom=symptoms.WRONG_NUMBERS,
)
def multiplies_by_alpha_alone(weight, bias, down, up, up_bias, *, alpha):
    """r times too much. With the usual rank of 8 and alpha of 16, training
    collapses, or an adapter made elsewhere ruins the model.
    cause: The factor is α, and not α / r.
    fix: Divide alpha by the rank of the adapter.
    hint: Rank 1 is right. What becomes of the factor with rank 4?"""
    return weight + alpha * up @ down, bias + alpha * up_bias


@task(
    against="unnormalised weights, one by one",
    home="reward.best_law",
    cases={
        "two answers": (f64(0.5, 0.5), f64(0, 1), 1.0),
        "three words, by hand": (f64(0.5, 0.25, 0.25), f64(0, 0, 1), 0.9102),
        "one that was never given": (f64(0.5, 0.5, 0), f64(1, 0, 9), 2.0),
        "rewards in the thousands": (
            f64(0.25, 0.25, 0.5),
            f64(1e4, 0, 9999.95),
            0.1,
        ),
        "nine answers, a strong brake": (
            randn(9, seed=1).softmax(-1),
            randn(9, seed=2),
            20.0,
        ),
        "two prompts": (
            randn(2, 4, seed=3).softmax(-1),
            randn(2, 4, seed=4) - f64([0], [1000]),
            0.5,
        ),
        "17 prompts, 300 answers": (
            randn(17, 300, seed=5).softmax(-1),
            randn(17, 300, seed=6),
            0.5,
        ),
    },
)
def best_law(before, rewards, beta):
    """the law (..., Y) with the largest mean reward minus β times KL(π‖π₀),
    where π₀ (..., Y) is the law before, and rewards are (..., Y)"""
    best = rewards.amax(-1, keepdim=True)
    weights = before * torch.exp((rewards - best) / beta)
    return weights / weights.sum(-1, keepdim=True)


@best_law.mistake(symptom=symptoms.WRONG_NUMBERS)
def forgets_the_law_before(before, rewards, beta):
    """All answers with one reward are equally probable, also those that
    nobody would say.
    cause: The softmax is taken of the rewards alone: the model before is left
    out.
    fix: Multiply by π₀, or add its logarithm to r / β."""
    return (rewards / beta).softmax(-1)


@best_law.mistake(symptom=symptoms.WRONG_SHARPNESS)
def multiplies_by_beta(before, rewards, beta):
    """A stronger brake moves the law further, and not less.
    cause: The reward is multiplied by β.
    fix: Divide: β is the price of a nat, so a high price leaves less of the
    reward."""
    best = rewards.amax(-1, keepdim=True)
    weights = before * torch.exp((rewards - best) * beta)
    return weights / weights.sum(-1, keepdim=True)


@best_law.mistake(symptom=symptoms.NAN)
def overflows_at_large_rewards(before, rewards, beta):
    """Right for small rewards, NaN for large ones or a small β.
    cause: The exponential is taken of r / β as it is.
    fix: Subtract the largest first, or take a softmax of log π₀ + r / β."""
    weights = before * torch.exp(rewards / beta)
    return weights / weights.sum(-1, keepdim=True)


_LAWS = {
    "the same law": (f64(0, 0), f64(0.5, 0.5)),
    "two answers": (f64(0, 1), f64(0.5, 0.5)),
    "three answers": (f64(1, 0, -1), f64(0.2, 0.3, 0.5)),
    "nine answers": (randn(9, seed=1), randn(9, seed=2).softmax(-1)),
    "an answer that hardly comes": (f64(0, 800), f64(0.5, 0.5)),
    "far from where it began": (
        4 * randn(6, seed=3) + 1000,
        (4 * randn(6, seed=4)).softmax(-1),
    ),
    "300 answers": (randn(300, seed=5), randn(300, seed=6).softmax(-1)),
}


@task(against="torch.autograd", cases=_LAWS)
def kl_gradient(logits, before):
    """the gradient of KL(π‖π₀) with respect to the logits (Y,) of π; the law
    π₀ is `before` (Y,)"""
    with torch.enable_grad():
        x = logits.detach().clone().requires_grad_()
        log_law = torch.log_softmax(x, -1)
        total = (log_law.exp() * (log_law - before.log())).sum()
        return torch.autograd.grad(total, x)[0]


def averaged(logits, before, weight):
    """The mean over answers drawn from π of weight · ∇ log π."""
    law = logits.softmax(-1)
    w = weight(law.log() - before.log())
    return law * (w - law @ w)


@kl_gradient.mistake(
    "allenai/open-instruct #535, OpenRLHF/OpenRLHF #1309",
    symptom=(symptoms.WRONG_GRADIENTS, symptoms.TRAINS_BADLY),
)
def differentiates_k1(logits, before):
    """The logged divergence is right and grows and grows: nothing holds the
    model back.
    cause: log π − log π₀ at the answers that were drawn is put into the loss.
    Its gradient is that of log π alone, which is 0 on average.
    fix: Put the divergence into the reward, or ½ (log π − log π₀)² into the
    loss."""
    return averaged(logits, before, torch.ones_like)


@kl_gradient.mistake(
    "huggingface/trl #6503, OpenRLHF/OpenRLHF #1309, verl-project/verl #2953",
    symptom=symptoms.WRONG_GRADIENTS,
)
def differentiates_k3(logits, before):
    """The logged divergence is right, and the model ends elsewhere: what π₀
    says often is held, what it says seldom runs free.
    cause: π₀/π − 1 − log(π₀/π) at the answers that were drawn is put into the
    loss. Its mean is KL(π‖π₀); its gradient is that of KL(π₀‖π).
    fix: Multiply it by the ratio π/π_old, which has a gradient of its own,
    or take ½ (log π − log π₀)²."""
    return averaged(logits, before, lambda ratio: 1 - torch.exp(-ratio))


@kl_gradient.mistake(
    "qiancheng0/ToolRL #52",
    symptom=(symptoms.WRONG_GRADIENTS, symptoms.TRAINS_BADLY),
)
def rewards_leaving(logits, before):
    """The larger β is, the faster the model leaves what it was.
    cause: The divergence has the wrong sign: it is subtracted from a loss, or
    added to a reward.
    fix: A loss gets + β KL, a reward − β KL. With a large β nothing may move:
    try that once."""
    return -averaged(logits, before, lambda ratio: ratio)


_CLIP = (0.2, 0.3)


@task(
    against="the rule, case by case",
    home="reward.clipped_gain",
    gradients=True,
    cases={
        "nothing has changed": (f64(0), f64(2), 0.2, 0.2),
        "better, and far enough": (f64(0.5), f64(2), 0.2, 0.2),
        "worse, and far enough": (f64(-0.5), f64(-2), 0.2, 0.2),
        "moved the wrong way": (f64(3, -3), f64(-1, 1), 0.2, 0.2),
        "two bounds": (
            f64(-0.4, -0.1, 0.1, 0.24, 0.4, 0.24),
            f64(1, -1, 1, 1, 1, -1),
            *_CLIP,
        ),
        "two rows": (*randns((2, 5), (2, 5), seed=1), *_CLIP),
        "17 rows of 131": (*randns((17, 131), (17, 131), seed=3), *_CLIP),
    },
)
def clipped_gain(log_ratio, advantage, low, high):
    """the gain (...) of answers whose probability has changed by a factor,
    given its logarithm (...), and whose advantage is (...): factor ·
    advantage, but no more than at 1 + high for a good answer and at 1 − low
    for a bad one"""
    ratio = log_ratio.exp()
    good = torch.where(
        ratio > 1 + high, torch.full_like(ratio, 1 + high), ratio
    )
    bad = torch.where(ratio < 1 - low, torch.full_like(ratio, 1 - low), ratio)
    return advantage * torch.where(advantage > 0, good, bad)


@clipped_gain.mistake("takuseno/ppo #3", symptom=symptoms.TRAINS_BADLY)
def takes_the_minimum_first(log_ratio, advantage, low, high):
    """Good answers are bounded as they should be. Bad ones are not: their
    probability is pressed down without an end.
    cause: The smaller of the two ratios is taken, and then multiplied by the
    advantage, whose sign turns the order round.
    fix: Multiply both by the advantage, then take the smaller."""
    ratio = log_ratio.exp()
    cut = ratio.clamp(1 - low, 1 + high)
    return torch.minimum(ratio, cut) * advantage


@clipped_gain.mistake("ChenmienTan/RL2 #21", symptom=symptoms.TRAINS_BADLY)
def clips_from_low_on(log_ratio, advantage, low, high):
    """Good answers are bounded. Bad ones may become five times less probable
    before anything stops them.
    cause: The ratio is kept between ε and 1 + ε.
    fix: Between 1 − ε and 1 + ε."""
    ratio = log_ratio.exp()
    cut = ratio.clamp(low, 1 + high)
    return torch.minimum(ratio * advantage, cut * advantage)


@clipped_gain.mistake(symptom=symptoms.WRONG_GRADIENTS)
def cuts_on_both_sides(log_ratio, advantage, low, high):
    """An answer that has moved far in the wrong direction stays there: it has
    no gradient any more that would bring it back.
    cause: The ratio is clipped, and the unclipped product is forgotten.
    fix: Take the smaller of the clipped and the unclipped product."""
    return log_ratio.exp().clamp(1 - low, 1 + high) * advantage


@task(
    against="one answer at a time",
    cases={
        "two answers": (f64([1, 0]),),
        "a group that agrees": (f64([1, 1, 1]),),
        "one right of four": (f64([1, 0, 0, 0]),),
        "two prompts": (f64([1, 0, 0], [1, 1, 0]),),
        "an easy prompt and a hard one": (
            f64([1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]),
        ),
        "any rewards": (randn(3, 5, seed=1),),
        "17 prompts": (randn(17, 3, seed=2),),
        "131 answers": (randn(1, 131, seed=3),),
    },
)
def others_as_baseline(rewards):
    """the advantages (N, G) of G answers to each of N prompts: each reward
    (N, G) minus the mean reward of the other answers to its prompt"""
    found = torch.zeros_like(rewards)
    N, G = rewards.shape
    for n in range(N):
        for i in range(G):
            others = [rewards[n, j] for j in range(G) if j != i]
            found[n, i] = rewards[n, i] - sum(others) / len(others)
    return found


@others_as_baseline.mistake(symptom=symptoms.WRONG_GRADIENTS)
def takes_itself_in(rewards):
    """Everything is smaller by a factor 1 − 1/G: half of the gradient in
    groups of two, seven eighths in groups of eight.
    cause: The mean is taken over the whole group, the answer's own reward
    included.
    fix: Take the mean of the others, or multiply by G / (G − 1).
    hint: Is an answer's own reward among those of the others?"""
    return rewards - rewards.mean(-1, keepdim=True)


@others_as_baseline.mistake(
    "XU-YIJIE/grpo-flat #2, areal-project/AReaL #1419",
    symptom=symptoms.WRONG_IN_A_BATCH,
)
def mixes_the_prompts(rewards):
    """Right for a single prompt. In a batch all answers to an easy prompt are
    praised, the bad ones too, and all to a hard one are blamed.
    cause: The mean is taken over all answers of the batch, or over groups
    that are cut in the wrong places.
    fix: One row for each prompt; means along the answers alone.
    hint: To which prompts do the others belong that you average over?"""
    total = rewards.sum()
    return rewards - (total - rewards) / (rewards.numel() - 1)


@others_as_baseline.mistake(
    "thinking-machines-lab/tinker-cookbook #579",
    symptom=(symptoms.WRONG_GRADIENTS, symptoms.NAN),
)
def divides_by_the_deviation(rewards):
    """Prompts that are nearly always answered well, or nearly never, count
    more than others; a group that agrees gives 0/0.
    cause: The difference is divided by the group's standard deviation.
    fix: Subtract the mean only. Who wants the weighting should know that it
    is one, and add a small number to the deviation.
    hint: What is the standard deviation of a group that agrees?"""
    mean = rewards.mean(-1, keepdim=True)
    return (rewards - mean) / rewards.std(-1, keepdim=True)


def _pairs(*rows, seed, beta, by=1):
    """Log-probabilities of tokens now, times `by`, and before, and which of
    them count: a row of two strings for each pair, the preferred answer's
    first."""
    counts = torch.stack([marks(*row) for row in rows])  # (N, 2, T)
    now = -randn(*counts.shape, seed=seed).abs() * by
    before = -randn(*counts.shape, seed=seed + 1).abs()
    return call(now, before, counts, beta=beta)


@task(
    against="sums over tokens, pair by pair",
    cases={
        "one token each": _pairs(("1", "1"), seed=1, beta=1.0),
        "nothing has changed": call(
            f64([[-1, -2], [-3, -1]]),
            f64([[-1, -2], [-3, -1]]),
            torch.ones(1, 2, 2, dtype=torch.bool),
            beta=0.5,
        ),
        "a prompt before the answers": _pairs(("011", "011"), seed=3, beta=1),
        "answers of two lengths": _pairs(("01100", "01111"), seed=5, beta=0.1),
        "two pairs": _pairs(
            ("0110", "0111"), ("0011", "0010"), seed=7, beta=0.5
        ),
        "the preferred answer is nearly forgotten": _pairs(
            ("011", "001"), seed=9, beta=1.0, by=1000
        ),
        "an answer of twenty tokens": _pairs(
            ("0" + "1" * 20, "0" + "1" * 12 + "0" * 8), seed=11, beta=0.1
        ),
        "17 pairs of 131 tokens": _pairs(
            *[
                ("0" + "1" * (130 - n) + "0" * n, "0" + "1" * 130)
                for n in range(17)
            ],
            seed=13,
            beta=0.1,
        ),
    },
)
def dpo_loss(logs, logs_before, counts, *, beta):
    """the loss of DPO for each of N pairs, (N,): −log σ(β · margin), where
    the margin is how much more the preferred answer's log-probability has
    grown than the other's; logs (N, 2, T) has log p of each token now,
    logs_before that of the model before, preferred answers first, and
    counts (N, 2, T) says which tokens belong to the answer"""
    losses = []
    for now, before, count in zip(logs, logs_before, counts):
        grown = [
            sum(
                (now[which, t] - before[which, t])
                for t in range(count.shape[1])
                if count[which, t]
            )
            for which in (0, 1)
        ]
        margin = beta * (grown[0] - grown[1])
        losses.append(torch.logaddexp(torch.zeros_like(margin), -margin))
    return torch.stack(losses)


def of_margin(margin, beta):
    """The loss of a pair by its margin."""
    return -torch.nn.functional.logsigmoid(beta * margin)


@dpo_loss.mistake(
    "jingyaogong/minimind #298, linkedin/Liger-Kernel #693",
    symptom=(symptoms.WRONG_NUMBERS, symptoms.WRONG_IN_THE_NEXT_CASE),
)
def takes_the_mean_over_tokens(logs, logs_before, counts, *, beta):
    """Right for answers of one token. Long answers count less than they
    should, and the optimum is not the law of any reward.
    cause: The logs of the tokens are averaged. The log of an answer's
    probability is their sum.
    fix: Sum over the answer's tokens.
    hint: What is log p of an answer of two tokens?"""
    grown = ((logs - logs_before) * counts).sum(-1) / counts.sum(-1)
    return of_margin(grown[:, 0] - grown[:, 1], beta)


@dpo_loss.mistake("OpenRLHF/OpenRLHF #294", symptom=symptoms.WRONG_NUMBERS)
def masks_the_preferred_alone(logs, logs_before, counts, *, beta):
    """Right where there is no prompt. Else the prompt of the other answer is
    counted against it, and all prompts become less probable.
    cause: Two answers lie in one batch, and the list of prompt lengths is as
    long as half of it: only the first half is masked.
    fix: Mask both; with one prompt before both, what is forgotten on both
    sides cancels, on one side it does not.
    hint: Whose prompt is in your sum: nobody's, or that of one answer?"""
    both = counts.clone()
    last = counts.shape[-1] - counts.flip(-1).int().argmax(-1)  # (N, 2)
    T = torch.arange(counts.shape[-1])
    both[:, 1] = T < last[:, 1, None]
    grown = ((logs - logs_before) * both).sum(-1)
    return of_margin(grown[:, 0] - grown[:, 1], beta)


@dpo_loss.mistake("linkedin/Liger-Kernel #387", symptom=symptoms.WRONG_NUMBERS)
def forgets_the_model_before(logs, logs_before, counts, *, beta):
    """The first loss is not log 2, and nothing holds the model to what it
    was: this is another method (CPO).
    cause: The log-probabilities of the model before are left out.
    fix: Compare what each answer has gained since then.
    hint: What is the margin as long as nothing was trained?"""
    grown = (logs * counts).sum(-1)
    return of_margin(grown[:, 0] - grown[:, 1], beta)


@dpo_loss.mistake(symptom=(symptoms.WRONG_NUMBERS, symptoms.TRAINS_BADLY))
def prefers_the_other_one(logs, logs_before, counts, *, beta):
    """The loss falls, and the model learns what it was to unlearn.
    cause: The two answers are the wrong way round: in the batch or in the
    difference.
    fix: The preferred answer's gain comes first.
    hint: Which of the two answers should gain?"""
    grown = ((logs - logs_before) * counts).sum(-1)
    return of_margin(grown[:, 1] - grown[:, 0], beta)
