"""The machinery behind the pages: proofs, tasks, mistakes, figures."""
