# SPDX-License-Identifier: Apache-2.0
from .._unserved import unserved

unserved(__name__, "Spark's estimators")
