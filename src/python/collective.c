/* SPDX-License-Identifier: Apache-2.0 */
/* The group of this process, for Python: hopyard.collective, and TensorFlow by the bridge. */
#include "module.h"

#include "collective/collective.h"
