# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from typing import Any, NoReturn, final

version: str

class Error(Exception): ...

def report(values: dict[str, float], step: int | None, error: str | None, detail: str | None, /) -> None: ...
def serve(fd: int, /) -> list[bytes] | None: ...
def settle() -> int: ...
def leave(status: int, /) -> NoReturn: ...

@final
class Search:
    def __new__(
        cls,
        kind: str,
        space: Mapping[str, Any],
        direction: str,
        seed: int | None = None,
        samples: int | None = None,
        population: int | None = None,
        generations: int | None = None,
        mutation: float | None = None,
        crossover: float | None = None,
        strategy: str | None = None,
        asynchronous: bool = False,
    ) -> Search: ...
    def ask(self) -> tuple[int, dict[str, Any]] | None: ...
    def tell(self, number: int, value: float | None, /) -> None: ...
    @property
    def total(self) -> int | None: ...
    @property
    def done(self) -> bool: ...
