# SPDX-License-Identifier: Apache-2.0
from .gradient_aggregation import LocalGradientAggregationHelperEager as LocalGradientAggregationHelperEager
