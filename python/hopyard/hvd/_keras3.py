# SPDX-License-Identifier: Apache-2.0
"""Optimizers of Keras 3."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ._aggregate import Aggregation
from ._ops import Gradient
from ._reduce import Reducer
from ._wrapped import Wrapped, wrapped


def is_keras3(optimizer: Any) -> bool:
    return hasattr(optimizer, "stateless_apply")


class _Keras3(Wrapped):
    """Reduces gradients where they are applied: Keras 3 has no other place."""

    _hvd_is_given = False  # the arguments of `apply` are reduced already
    _trainable_variables: list[Any]
    built: bool
    build: Any

    @tf.autograph.experimental.do_not_convert
    def apply(
        self, grads: Sequence[Gradient | None], trainable_variables: Sequence[Any] | None = None
    ) -> None:
        apply = super().apply  # type: ignore[misc]
        given = self._trainable_variables if trainable_variables is None else trainable_variables
        variables = list(given)
        reduced = self._hvd_reduced(list(grads), variables)
        if self._hvd_aggregation is None:
            apply(reduced, trainable_variables)
            return
        if not self.built:  # variables cannot be created within a condition
            self.build(variables)
            self.built = True
        skip = lambda: self.iterations.assign_add(1)  # noqa: E731
        self._hvd_aggregation.when_due(lambda: apply(reduced, trainable_variables), skip)

    def _hvd_reduced(
        self, gradients: Sequence[Gradient | None], variables: Sequence[Any]
    ) -> list[Gradient | None]:
        return list(gradients) if self._hvd_is_given else super()._hvd_reduced(gradients, variables)


def wrapped_keras3(optimizer: Any, reducer: Reducer, aggregation: Aggregation | None) -> Any:
    """A new optimizer with the same settings, and the same state if it has one."""
    import keras

    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"hvd needs TensorFlow's tensors, but Keras' backend is {keras.backend.backend()}; "
            "set KERAS_BACKEND=tensorflow"
        )
    _teach(keras)
    result = wrapped(_Keras3, optimizer, reducer, aggregation)
    if optimizer.built:
        result.build(optimizer._trainable_variables)
        result.built = True
        for mine, theirs in zip(result.variables, optimizer.variables):
            mine.assign(theirs)
    return result


# ---- patches of Keras -------------------------------------------------------------


@functools.cache
def _teach(keras: Any) -> None:
    """Patches Keras where it must handle the optimizer differently, or lacks an argument that Horovod programs pass."""
    scaled = keras.optimizers.LossScaleOptimizer
    scaled.apply = _reduced_before_scaling(scaled.apply)
    trainer = next(each for each in keras.Model.__mro__ if "_resolve_auto_jit_compile" in vars(each))
    trainer._resolve_auto_jit_compile = _not_ours(trainer._resolve_auto_jit_compile)
    trainer = next(each for each in keras.Model.__mro__ if "compile" in vars(each))
    trainer.compile = _without_run_tf_function(trainer.compile)


def _reduced_before_scaling(apply: Any) -> Any:
    """A LossScaleOptimizer applies gradients only if they are finite.

    The check must use the reduced gradients: otherwise one rank reduces, and another does not. (`fit` creates such an
    optimizer for mixed_float16.)
    """

    @functools.wraps(apply)
    def reduced_first(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        inner = self.inner_optimizer
        if not isinstance(inner, _Keras3):
            apply(self, grads, trainable_variables)
            return
        variables = inner._trainable_variables if trainable_variables is None else trainable_variables
        grads = inner._hvd_reduced(list(grads), list(variables))
        inner._hvd_is_given = True
        try:
            apply(self, grads, trainable_variables)
        finally:
            inner._hvd_is_given = False

    return reduced_first


def _not_ours(resolve: Any) -> Any:
    """jit_compile="auto" must not become True if the step has ops that XLA cannot compile."""

    @functools.wraps(resolve)
    def resolved(self: Any) -> bool:
        optimizer = getattr(self, "optimizer", None)
        inner = getattr(optimizer, "inner_optimizer", None)
        return not isinstance(optimizer, _Keras3) and not isinstance(inner, _Keras3) and resolve(self)

    return resolved


def _without_run_tf_function(compile_: Any) -> Any:
    """Horovod's examples pass experimental_run_tf_function=False, which tf_keras ignores and Keras 3 rejects."""

    @functools.wraps(compile_)
    def compiled(self: Any, *args: Any, **given: Any) -> Any:
        given.pop("experimental_run_tf_function", None)
        return compile_(self, *args, **given)

    return compiled
