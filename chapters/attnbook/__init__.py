"""The helper package of *From Averages to Attention*.

Pure functions stand at the bottom (`attention`, `masks`, `positions`), layers
on them (`layers`, with `cache` for earlier tokens), a model on those (`gpt`),
what it is trained on and how (`town`, `text`, `training`), what it writes and
how fast (`generate`, `fast`), other people's models (`pretrained`,
`weights`). `run` keeps a long training safe; `teach` is the machinery behind
the pages. Both import the library, never the other way.
The notebooks import it from beside them.
"""

__version__ = "0.1.0"
