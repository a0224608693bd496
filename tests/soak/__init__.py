"""Runs a join under load while random things break. Every result must arrive, and every stop must name its cause.

Run `python -m soak --help` in the folder `tests`, or `make soak`.
"""
