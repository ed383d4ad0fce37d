# SPDX-License-Identifier: Apache-2.0
"""Results that are made up."""

from collections import Counter

from hopyard.experiment import Result


class Known:
    """Reads what it was given."""

    def __init__(self, trials, notes, log_params=()):
        self._trials, self._notes, self._log_params = trials, notes, list(log_params)

    def trial(self, number):
        return next(t for t in self._trials if t.number == number)

    def trials(self):
        return self._trials

    def notes(self):
        return self._notes

    def log_params(self):
        return self._log_params


def make_result(trials, best, notes, log_params=(), **facts):
    counts = dict(Counter(t.state for t in trials))
    return Result(_counts=counts, _best_number=best, _reader=Known(trials, notes, log_params), **facts)
