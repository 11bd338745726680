"""A run, and the checkpoints from which it goes on to the bit.

A checkpoint is a model's file (see `attnbook.pretrained.save_model`) that
holds what the optimiser keeps and the random generators beside the weights.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from attnbook import files
from attnbook.gpt import GPT
from attnbook.run.processes import of_all_processes, processes_here
from attnbook.text import Vocabulary
from attnbook.training import Recipe, make_optimizer


class Run:
    """All that a training changes, and what tells it from another one.

    Args:
        data: in words what is trained on; a resumed run must say the same.
    """

    def __init__(
        self, model: GPT, recipe: Recipe, vocabulary: Vocabulary, data: str
    ) -> None:
        self.model, self.recipe = model, recipe
        self.device = next(model.parameters()).device
        self.optimizer = make_optimizer(model, recipe)
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.losses: list[float] = []
        self.randoms = {"random.cpu": torch.default_generator}
        if self.device.type == "cuda":
            index = self.device.index or torch.cuda.current_device()
            card = torch.cuda.default_generators[index]
            self.randoms["random.cuda"] = card
        about = {
            "config": asdict(model.config),
            "recipe": asdict(recipe),
            "vocabulary": list(vocabulary),
            "data": data,
            "processes": processes_here()[1],
            "device": self.device.type,
        }
        self.about = json.loads(json.dumps(about))  # as it will be read

    def save(self, path: Path) -> None:
        """Write a checkpoint; every process calls it, the first one writes."""
        tensors = {
            name: torch.stack(of_all_processes(random.get_state()))
            for name, random in self.randoms.items()
        }
        if processes_here()[0] == 0:
            tensors["random.batches"] = self.generator.get_state()
            tensors["losses"] = torch.tensor(self.losses, dtype=torch.float64)
            for name, tensor in self.model.state_dict().items():
                tensors[f"model.{name}"] = tensor
            for name, parameter in self._parameters():
                for key, kept in self.optimizer.state[parameter].items():
                    tensors[f"optimizer.{name}.{key}"] = kept
            files.write(path, tensors, self.about)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, which is judged before anything changes.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a damaged file, or one of another run.
        """
        stored, about = files.read(path)
        self._judge(path, stored, about)
        weights = {n: stored[f"model.{n}"] for n in self.model.state_dict()}
        self.model.load_state_dict(weights, strict=True)
        kept = {
            n: {k: stored[f"optimizer.{name}.{k}"] for k in _kept(self.recipe)}
            for n, (name, _) in enumerate(self._parameters())
        }
        state = self.optimizer.state_dict() | {"state": kept}
        self.optimizer.load_state_dict(state)
        self.losses = stored["losses"].tolist()
        self.generator.set_state(stored["random.batches"])
        for name, random in self.randoms.items():
            # A copy: torch crashes on a part of a tensor.
            random.set_state(stored[name][processes_here()[0]].clone())

    def _parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Names and parameters, in the optimiser's order."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        groups = self.optimizer.param_groups
        return [(names[id(p)], p) for g in groups for p in g["params"]]

    def _judge(
        self, path: Path, stored: dict[str, Tensor], about: dict
    ) -> None:
        """Raise if a checkpoint is not whole, or of another run."""
        for name, ours in self.about.items():
            theirs = about.get(name)
            if ours != theirs:
                if isinstance(ours, dict) and isinstance(theirs, dict):
                    keys = [k for k in ours if ours[k] != theirs.get(k)]
                    ours = {k: ours[k] for k in keys}
                    theirs = {k: theirs.get(k) for k in keys}
                raise ValueError(
                    f"{path} is of another run; expected {name} "
                    f"{files.shown(ours)}; got {files.shown(theirs)}"
                )
        processes = self.about["processes"]
        done = stored.get("losses", torch.empty(0)).numel()
        expected = {
            "random.batches": self.generator.get_state(),
            "losses": torch.empty(
                min(max(done, 1), self.recipe.steps), dtype=torch.float64
            ),
        }
        for name, random in self.randoms.items():
            expected[name] = random.get_state().expand(processes, -1)
        for name, tensor in self.model.state_dict().items():
            expected[f"model.{name}"] = tensor
        for name, parameter in self._parameters():
            for key, like in _kept(self.recipe).items():
                tensor = parameter if like else torch.tensor(0.0)
                expected[f"optimizer.{name}.{key}"] = tensor
        for name in expected | stored:
            sizes = [
                f"{tuple(t[name].shape)} {t[name].dtype}" if name in t else ""
                for t in (expected, stored)
            ]
            if sizes[0] != sizes[1]:
                raise ValueError(
                    f"{path} cannot be resumed; expected {files.shown(name)} "
                    f"{sizes[0] or 'not there'}; got {sizes[1] or 'none'}"
                )
        try:
            torch.Generator().set_state(stored["random.batches"])
            for name, random in self.randoms.items():
                for state in stored[name]:
                    torch.Generator(random.device).set_state(state.clone())
        except RuntimeError as error:
            raise ValueError(
                f"{path} cannot be resumed; expected states of random "
                f"generators; got {error}"
            ) from None


def _kept(recipe: Recipe) -> dict[str, bool]:
    """What the optimiser keeps of a parameter, and if it has its shape."""
    one = torch.zeros(2, 1)
    tried = nn.ParameterList([one])
    optimizer = make_optimizer(tried, recipe)
    tried[0].grad = one
    optimizer.step()
    kept = optimizer.state[tried[0]]
    return {key: t.shape == one.shape for key, t in kept.items()}
