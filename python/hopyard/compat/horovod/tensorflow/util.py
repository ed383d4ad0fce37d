# SPDX-License-Identifier: Apache-2.0
from typing import Any


def vars_to_refs(vars: Any) -> Any:
    """A hashable key for variables, or lists of variables."""
    return tuple(vars_to_refs(v) for v in vars) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    return [refs_to_vars(r) for r in refs] if isinstance(refs, tuple) else refs.deref()
