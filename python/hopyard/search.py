# SPDX-License-Identifier: Apache-2.0
"""Which parameters to try next: ask for a trial, run it, tell its value.

    search = Evolution({"lr": "log:1e-5..1e-1", "layers": (1, 4), "act": ["relu", "tanh"]}, generations=10)
    while not search.done:
        trial = search.ask()
        search.tell(trial, train(**trial.params))

A space is a dict from names to values. In a grid the values are the choices, whatever they are, and
come back as the same objects. Elsewhere two numbers are bounds, in either order (two ints make an
integer dimension), and any other list is a category. A text is read as on the command line, and
hopyard.log, integer, uniform and choice say the same in Python.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _hopyard
from .space import choice, integer, log, native, uniform

__all__ = ["Evolution", "Grid", "Paired", "Random", "Space", "Trial"]

Space = Mapping[str, Iterable[Any] | str | choice | integer | log | uniform]


@dataclass(frozen=True, slots=True)
class Trial:
    """One point of the space. Trials are numbered from 1."""

    number: int
    params: dict[str, Any]


class _Search:
    """What the kinds of search have in common."""

    seed: int
    """The seed in use: given again, it gives the same trials."""

    def __init__(self, kind: str, space: Space, direction: str, seed: int | None, **settings: Any) -> None:
        self.seed = secrets.randbits(64) if seed is None else seed
        self._native = _hopyard.Search(kind, native(space), direction, self.seed, **settings)

    def ask(self) -> Trial | None:
        """The next trial; None when a generation waits for answers, or when the search is done."""
        answer = self._native.ask()
        return None if answer is None else Trial(*answer)

    def tell(self, trial: Trial, value: float | None) -> None:
        """What the trial came to. None (it failed), NaN and infinities count as the worst there is."""
        self._native.tell(trial.number, value)

    @property
    def total(self) -> int | None:
        """How many trials there will be; None when without end."""
        return self._native.total

    @property
    def done(self) -> bool:
        """Whether every trial has been asked for."""
        return self._native.done


class Grid(_Search):
    """Every combination, the first name slowest."""

    def __init__(self, space: Space, direction: str = "max", seed: int | None = None) -> None:
        super().__init__("grid", space, direction, seed)


class Paired(_Search):
    """The first values of all lists, then the second ones, and so on; the lists are equally long."""

    def __init__(self, space: Space, direction: str = "max", seed: int | None = None) -> None:
        super().__init__("paired", space, direction, seed)


class Random(_Search):
    """Points by chance, `samples` of them or without end. Trial i depends on the seed and on i alone."""

    def __init__(
        self, space: Space, samples: int | None = None, direction: str = "max", seed: int | None = None
    ) -> None:
        super().__init__("random", space, direction, seed, samples=samples)


class Evolution(_Search):
    """Differential evolution: `generations` of `population` trials, or generations without end.

    Without a `strategy` it is current-to-elite/1/bin, which needs the fewest trials; "best1bin" and
    "rand1bin" are the textbook's. With `asynchronous` no ask waits for an answer.
    """

    def __init__(
        self,
        space: Space,
        population: int | None = None,
        generations: int | None = None,
        mutation: float | None = None,
        crossover: float | None = None,
        strategy: str | None = None,
        asynchronous: bool = False,
        direction: str = "max",
        seed: int | None = None,
    ) -> None:
        super().__init__(
            "evolve",
            space,
            direction,
            seed,
            population=population,
            generations=generations,
            mutation=mutation,
            crossover=crossover,
            strategy=strategy,
            asynchronous=asynchronous,
        )
