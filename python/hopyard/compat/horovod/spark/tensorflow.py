# SPDX-License-Identifier: Apache-2.0
from .._unserved import unserved

unserved(__name__, "tf.data's service on Spark")
