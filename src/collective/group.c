/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/collective.h"
