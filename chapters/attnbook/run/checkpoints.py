"""A run, and the checkpoints from which it goes on to the bit.

A checkpoint is a model's file (see `attnbook.pretrained.save_model`) that
holds what the optimiser keeps and the random generators beside the weights.
"""

import json
from dataclasses import asdict
from pathlib import Path

import torch

from attnbook import files
from attnbook.gpt import GPT
from attnbook.run.processes import of_all_processes, processes_here
from attnbook.training import Recipe, make_optimizer
from attnbook.vocabulary import Vocabulary


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
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.losses: list[float] = []
        self.optimizer = make_optimizer(model, recipe)
        #: What a step changes, by name: the weights and what AdamW keeps.
        self.tensors = {f"model.{n}": t for n, t in model.state_dict().items()}
        for name, parameter in model.named_parameters():
            kept = self.optimizer.state[parameter] = {  # as it begins
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            for key, tensor in kept.items():
                self.tensors[f"optimizer.{name}.{key}"] = tensor
        self.randoms = {
            "random.batches": self.generator,
            "random.cpu": torch.default_generator,
        }
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
        states = {
            name: torch.stack(of_all_processes(random.get_state()))
            for name, random in self.randoms.items()
        }
        states["losses"] = torch.tensor(self.losses, dtype=torch.float64)
        if processes_here()[0] == 0:
            files.write(path, self.tensors | states, self.about)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, which is judged before anything changes.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a damaged file, or one of another run.
        """
        stored, about = files.read(path)
        self._judge(path, stored, about)
        for name, tensor in self.tensors.items():
            tensor.copy_(stored[name])
        self.losses = stored["losses"].tolist()
        for name, random in self.randoms.items():
            # A copy: torch crashes on a part of a tensor.
            random.set_state(stored[name][processes_here()[0]].clone())

    def _judge(self, path: Path, stored: dict, about: dict) -> None:
        """Raise if a checkpoint is not whole, or of another run."""
        for name, ours in self.about.items():
            theirs = about.get(name)
            if isinstance(ours, dict) and isinstance(theirs, dict):
                keys = [k for k in ours if ours[k] != theirs.get(k)]
                ours = {k: ours[k] for k in keys}
                theirs = {k: theirs.get(k) for k in keys}
            if ours != theirs:
                raise ValueError(
                    f"{path} is of another run; expected {name} "
                    f"{files.shown(ours)}; got {files.shown(theirs)}"
                )
        done = stored.get("losses", torch.empty(0)).numel()
        done = min(max(done, 1), self.recipe.steps)
        expected = self.tensors | {"losses": torch.zeros(done).double()}
        for name, random in self.randoms.items():
            expected[name] = random.get_state().expand(processes_here()[1], -1)
        wanted, found = _shapes(expected), _shapes(stored)
        for name in wanted | found:
            if wanted.get(name) != found.get(name):
                raise ValueError(
                    f"{path} cannot be resumed; expected {files.shown(name)}: "
                    f"{wanted.get(name)}; got {found.get(name)}"
                )
        try:
            for name, random in self.randoms.items():
                for state in stored[name]:
                    torch.Generator(random.device).set_state(state.clone())
        except RuntimeError as error:
            raise ValueError(
                f"{path} cannot be resumed; expected states of random "
                f"generators; got {error}"
            ) from None


def _shapes(tensors):
    return {n: f"{tuple(t.shape)} {t.dtype}" for n, t in tensors.items()}
