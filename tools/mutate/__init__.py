"""Wrong programs, made by changing one thing in a right one.

`mutations` makes the changes, `tasks` makes mutants of right answers and asks
the tasks about them, `tame` makes answers that are right only where all cases
are alike in one respect, `rooms` makes mutants of the library's modules and
asks their tests, and `killable` asks in processes that may hang or die. The
command is `tools/mutants.py`; `equivalent.toml` and `tame.toml` say of the
mutants that pass why they do.
"""
