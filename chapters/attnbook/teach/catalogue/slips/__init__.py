"""Slips that a check recognises and answers with a hint, and no more.

A known mistake has its page in the catalogue: what one sees, why, where it was
seen. These are the smaller ones of single exercises: a wrong function, its
name in words, and a question.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
