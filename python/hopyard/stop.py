# SPDX-License-Identifier: Apache-2.0
"""Early stopping of trials, by the values of the metric that they report: the setting `stop` of experiments.

    import hopyard
    from hopyard import experiment

    def training(lr):
        for epoch in range(1, 28):
            ...
            if hopyard.report(step=epoch, accuracy=accuracy).should_end:
                break
        return accuracy

    experiment.random_search(training, space, 100, metric="accuracy", stop=hopyard.stop.ASHA(max=27))

The name of a rule selects it with its default options: stop="median". A trial that is stopped early is `pruned`: its
value is the last one that it has reported. All rules stop trials whose metric is NaN or infinite.
"""

from dataclasses import dataclass

__all__ = ["ASHA", "Diverged", "Halving", "Hyperband", "Median", "Patience", "Rule"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """grace: a trial that has not ended so long after the decision is killed; seconds, or "5m". Default: 30 s"""

    grace: int | float | str | None = None

    def _options(self) -> dict[str, object]:
        """As options of `hopyard run`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Median(Rule):
    """Stops a trial whose best value is worse than the median of the other trials at the same step.

    min: no trial is stopped before this step
    """

    min: int | None = None

    def _options(self) -> dict[str, object]:
        return {"stop": "median", "stop-min": self.min}


@dataclass(frozen=True)
class Patience(Rule):
    """Stops a trial that has not improved for some steps.

    steps: without an improvement
    min_delta: a smaller improvement does not count
    min: no trial is stopped before this step
    """

    steps: int
    min_delta: float | None = None
    min: int | None = None

    def _options(self) -> dict[str, object]:
        return {"stop": "patience", "patience": self.steps, "min-delta": self.min_delta, "stop-min": self.min}


@dataclass(frozen=True)
class ASHA(Rule):
    """Asynchronous successive halving: at the steps min, min * reduction, ..., one of `reduction` trials continues.

    min: the first of these steps; default: 1
    max: the steps of a complete trial; default: unknown
    reduction: default: 3
    pause: True: trials that do not continue are paused, without a slot, and continue from their checkpoint if they are
        among the best later. Otherwise they are stopped at once
    """

    min: int | None = None
    max: int | None = None
    reduction: int | None = None
    pause: bool = False

    def _options(self) -> dict[str, object]:
        return {"stop": "asha", "stop-min": self.min, "stop-max": self.max, "reduction": self.reduction,
                "stop-pause": self.pause}  # fmt: skip


@dataclass(frozen=True)
class Halving(Rule):
    """Successive halving: at the steps min, min * reduction, ..., trials pause until all of a round have arrived there;
    the best continue from their checkpoint.

    max: the steps of a complete trial
    min: the first of these steps; default: 1
    reduction: 1/reduction of the trials continue; default: 3
    """

    max: int
    min: int | None = None
    reduction: int | None = None

    def _options(self) -> dict[str, object]:
        return {"stop": "halving", "stop-min": self.min, "stop-max": self.max, "reduction": self.reduction}


@dataclass(frozen=True)
class Hyperband(Halving):
    """Successive halving in several brackets, from many trials with an early first decision to a few that run all
    steps. The options are those of Halving."""

    def _options(self) -> dict[str, object]:
        return {**super()._options(), "stop": "hyperband"}


@dataclass(frozen=True)
class Diverged(Rule):
    """Stops only trials whose metric is NaN or infinite."""

    def _options(self) -> dict[str, object]:
        return {"stop": "none"}
