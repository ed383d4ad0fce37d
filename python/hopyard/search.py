# SPDX-License-Identifier: Apache-2.0
"""Searches with an ask-and-tell interface: ask for a trial, run it, tell its value.

    search = Evolution({"lr": "log:1e-5..1e-1", "layers": (1, 4), "act": ["relu", "tanh"]}, generations=10)
    while not search.done:
        trial = search.ask()
        search.tell(trial, train(**trial.params))

A space is a dict from names to values. In a grid the values are the choices, whatever they are, and
come back as the same objects. Elsewhere two numbers are bounds, in either order (two ints make an
integer dimension), and any other list is a category. A string is parsed as on the command line;
hopyard.log, integer, uniform, normal, lognormal and choice are the same in Python. A trial's params
lack what is inactive in it (`when=`).
"""

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _hopyard
from .space import choice, integer, log, lognormal, native, normal, uniform

__all__ = ["CMA", "TPE", "Evolution", "Grid", "Paired", "Random", "Space", "Trial"]

Space = Mapping[str, Iterable[Any] | str | choice | integer | log | lognormal | normal | uniform]


@dataclass(frozen=True, slots=True)
class Trial:
    """One point of the space. Trials are numbered from 1."""

    number: int
    params: dict[str, Any]
    value: float | None = None
    """The value given to `tell`, in a search's `best`."""


class _Search:
    """The base class of all searches."""

    seed: int
    """The seed in use: the same seed gives the same trials."""

    def __init__(self, kind: str, space: Space, direction: str, seed: int | None, **settings: Any) -> None:
        self.seed = secrets.randbits(64) if seed is None else seed
        self._native = _hopyard.Search(kind, native(space), direction, self.seed, **settings)
        self._sign = -1 if direction == "min" else 1
        self._best: Trial | None = None

    def ask(self) -> Trial | None:
        """The next trial; None while a generation waits for values, or when the search is done."""
        answer = self._native.ask()
        return None if answer is None else Trial(*answer)

    def tell(self, trial: Trial, value: float | None) -> None:
        """Tell the search the result of a trial.

        trial: what `ask` returned
        value: its metric; None (the trial failed), NaN and infinities count as the worst there is
        """
        self._native.tell(trial.number, value)
        best = self._best.value if self._best else None
        if value is None or not math.isfinite(value) or (best is not None and self._sign * value <= self._sign * best):
            return
        self._best = Trial(trial.number, trial.params, float(value))

    @property
    def best(self) -> Trial | None:
        """The best trial so far, with its `value`; the first one of equals. None before the first result."""
        return self._best

    @property
    def total(self) -> int | None:
        """The total number of trials; None if it is unlimited."""
        return self._native.total

    @property
    def done(self) -> bool:
        """Whether every trial has been asked for."""
        return self._native.done


class Grid(_Search):
    """Every combination of the values; the first name varies slowest.

    space: values by name: lists, `hopyard.choice(...)`, `hopyard.integer(low, high)`, or texts as on the
        command line
    direction: "max" or "min": which values are better
    seed: kept for the other searches' sake: a grid draws nothing
    """

    def __init__(self, space: Space, direction: str = "max", seed: int | None = None) -> None:
        super().__init__("grid", space, direction, seed)


class Paired(_Search):
    """The first values of all lists, then the second ones, and so on.

    space: lists of values by name, all of the same length
    direction: "max" or "min": which values are better
    seed: kept for the other searches' sake: nothing is drawn
    """

    def __init__(self, space: Space, direction: str = "max", seed: int | None = None) -> None:
        super().__init__("paired", space, direction, seed)


class Random(_Search):
    """Points drawn at random. Trial i depends on the seed and i only.

    space: values by name: two numbers are bounds, other lists are choices; `hopyard.uniform`, `log`, `integer` and
        `choice` say it explicitly
    samples: how many points; None: without end
    direction: "max" or "min": which values are better
    seed: the same seed gives the same trials; None: a random one, which `seed` holds afterwards
    """

    def __init__(
        self, space: Space, samples: int | None = None, direction: str = "max", seed: int | None = None
    ) -> None:
        super().__init__("random", space, direction, seed, samples=samples)


class Evolution(_Search):
    """Differential evolution: new trials combine the best ones so far.

    space: values by name, as for Random
    population: trials of one generation; None: as many as fit the space
    generations: how many there are; None: without end
    mutation: the distance of a child from its parents, above 0 to 2; None: drawn at random for each
    crossover: the probability that a value is taken from the mutant, 0 to 1; None: the strategy's own
    strategy: "best1bin" or "rand1bin", the textbook's; None: current-to-elite/1/bin, which needs the fewest trials
    asynchronous: True: no `ask` waits until a generation is complete
    direction: "max" or "min": which values are better
    seed: the same seed gives the same trials; None: a random one, which `seed` holds afterwards
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


class TPE(_Search):
    """A tree-structured Parzen estimator: points that are likely among the good ones and unlikely among the others.

    space: values by name, as for Random
    samples: the number of trials; None: unlimited
    direction: "max" or "min": which values are better
    seed: the same seed gives the same trials; None: a random one, which `seed` holds afterwards
    """

    def __init__(
        self, space: Space, samples: int | None = None, direction: str = "max", seed: int | None = None
    ) -> None:
        super().__init__("tpe", space, direction, seed, samples=samples)


class CMA(_Search):
    """CMA-ES: adapts the covariance matrix of a normal distribution, from which each generation is drawn.

    space: values by name, as for Random
    samples: the number of trials; None: unlimited
    population: trials of one generation; None: 4 and three times the logarithm of the number of dimensions
    asynchronous: True: no `ask` waits until a generation is complete
    direction: "max" or "min": which values are better
    seed: the same seed gives the same trials; None: a random one, which `seed` holds afterwards
    """

    def __init__(
        self,
        space: Space,
        samples: int | None = None,
        population: int | None = None,
        asynchronous: bool = False,
        direction: str = "max",
        seed: int | None = None,
    ) -> None:
        super().__init__(
            "cma", space, direction, seed, samples=samples, population=population, asynchronous=asynchronous
        )
