# SPDX-License-Identifier: Apache-2.0
"""Compression of tensors that are sent between ranks."""

from typing import Any

import tensorflow as tf

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor:
    """The interface of a compression."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """The tensor to send, and the context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """No compression."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, None]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: None) -> tf.Tensor:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating point numbers as float16."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.DType]:
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: tf.DType) -> tf.Tensor:
        return tf.cast(tensor, ctx) if ctx.is_floating else tensor


class Compression:
    """The values of `compression` arguments."""

    none = NoneCompressor
    fp16 = FP16Compressor
