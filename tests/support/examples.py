"""The number of examples that Hypothesis tries: a fifth in `make unit`, all in CI."""

import os

QUICK = bool(os.environ.get("BALAJOIN_QUICK")) and not os.environ.get("CI")


def examples(usual: int) -> int:
    return max(1, usual // 5) if QUICK else usual
