from pathlib import Path

import pytest

from balajoin.embedded import EmbeddedKafka
from balajoin.errors import SetupError


def test_address_before_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"call start\(\) first"):
        _ = EmbeddedKafka(tmp_path, []).bootstrap_servers
