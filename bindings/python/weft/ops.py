"""Ops of the program."""
from typing import Any, Mapping, Optional


def cause_of(ops: Mapping[str, Any], status: int) -> Optional[BaseException]:
    return None
