"""A join under load while random things break: every result must arrive, and every stop must say why.

`python -m soak --help`, from the folder `tests`, or `make soak`.
"""
