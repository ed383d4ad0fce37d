# SPDX-License-Identifier: Apache-2.0
"""DistributedGradientTape: a tape that reduces gradients over all ranks."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ._buckets import Agreement
from ._ops import Average, Compressors, Gradient
from ._reduce import Groups, Reducer, checked_groups, checked_predivide
from ._sets import ProcessSet, global_process_set
from .compression import Compression

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]

_agreement = Agreement()
made = 0
"""The number of tapes so far: an optimizer may check whether its gradients came from one."""


class Tape:
    """A mix-in that precedes the tape's class."""

    _hvd_reducer: Reducer

    def register_local_source(self, source: Any) -> None:
        """Excludes a variable's gradient from reduction."""
        self._hvd_reducer.keep_local(source)

    @tf.autograph.experimental.do_not_convert
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **given: Any,
    ) -> Any:
        """Like tf.GradientTape.gradient, reduced over all ranks. Requests have generic names."""
        gradients = super().gradient(target, sources, output_gradients, **given)  # type: ignore[misc]
        flat = self._hvd_reducer(
            tf.nest.flatten(gradients, expand_composites=False), tf.nest.flatten(sources)
        )
        return tf.nest.pack_sequence_as(gradients, flat)

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Sequence[Any],
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list[tuple[Any, Gradient | None]], list[tuple[Any, Gradient | None]]]:
        """Pairs of source and gradient: those of local sources, and the others."""
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients, use_generic_names)))
        is_local = [self._hvd_reducer.is_local(source) for source in sources]
        return (
            [pair for pair, local in zip(pairs, is_local) if local],
            [pair for pair, local in zip(pairs, is_local) if not local],
        )


def DistributedGradientTape(
    gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "",
    compression: Compressors = Compression.none, sparse_as_dense: bool = False, op: int = Average,
    gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Groups = None,
    process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """The given tape, with everything it has recorded, as one whose `gradient` reduces over all ranks.

    The arguments are those of hvd.DistributedOptimizer.
    """
    global made
    checked_predivide(gradient_predivide_factor, op)
    groups = checked_groups(num_groups, groups)
    kind = type(gradtape)
    ours: Any = type(kind.__name__, (Tape, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    wrapped = ours.__new__(ours)
    wrapped.__dict__.update(
        gradtape.__dict__, _recording=False
    )  # takes over the recording; the given tape stops
    wrapped._hvd_reducer = Reducer(
        "DistributedGradientTape", device_dense, device_sparse, compression, sparse_as_dense, op,
        gradient_predivide_factor, groups, process_set, scale_local_gradients, _agreement,
    )  # fmt: skip
    made += 1
    return wrapped


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "",
    compression: Compressors = Compression.none, sparse_as_dense: bool = False, op: int = Average,
    gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Groups = None,
    process_set: ProcessSet = global_process_set, local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """A DistributedGradientTape that does not reduce the gradients of `local_layers`."""
    from ._optimizer import variables_of

    tape = DistributedGradientTape(
        gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor,
        num_groups, groups, process_set, scale_local_gradients,
    )  # fmt: skip
    for variable in variables_of(local_layers):
        tape.register_local_source(variable)
    return tape
