# SPDX-License-Identifier: Apache-2.0
"""Helpers of Horovod. hopyard is not built per framework, so every check of a build passes."""

import os
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

EXTENSIONS = ["tensorflow", "torch", "mxnet"]


def get_ext_suffix() -> str:
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    return os.path.join(os.path.dirname(pkg_path), *args[:-1], args[-1] + get_ext_suffix())


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    return ext_base_name == "tensorflow"


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    if not extension_available(ext_name.removeprefix("horovod.")):
        raise ImportError(f"'{ext_name}' is not served by hopyard; see docs/horovod.md", name=ext_name)


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Does nothing: one build works with every version."""


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def mpi_built(verbose: bool = False) -> bool:
    return False


def gloo_built(verbose: bool = False) -> bool:
    return True


def nccl_built(verbose: bool = False) -> bool:
    return False


def ddl_built(verbose: bool = False) -> bool:
    return False


def ccl_built(verbose: bool = False) -> bool:
    return False


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets environment variables within the context; those that are None are unchanged."""
    given = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Any, bool | None], Any]:
    """How `average` and `op` go together, given what has Average and Sum."""

    def impl(op: Any, average: bool | None) -> Any:
        if op is not None and average is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        if average is not None:
            warnings.warn(
                "Parameter `average` has been replaced with `op` and will be removed in v1.0",
                DeprecationWarning,
                stacklevel=3,
            )
        if op is not None:
            return op
        return reduce_ops.Sum if average is False else reduce_ops.Average

    return impl


def num_rank_is_power_2(num_rank: int) -> bool:
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[Any], n: int) -> list[Sequence[Any]]:  # noqa: E741  (the argument's name is Horovod's)
    """Splits into n parts; the first ones are longer by one if the division has a remainder."""
    short, longer = divmod(len(l), n)
    ends = [i * short + min(i, longer) for i in range(n + 1)]
    return [l[begin:end] for begin, end in zip(ends, ends[1:])]


def is_iterable(x: Any) -> bool:
    try:
        iter(x)
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    from packaging import version

    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions must be strings, not {ver!r} and {target!r}")
    if len(target.split(".")) != 3:
        raise ValueError(f"the version to compare with must be major.minor.patch, not '{target}'")
    return version.parse(ver) >= version.parse(target)
