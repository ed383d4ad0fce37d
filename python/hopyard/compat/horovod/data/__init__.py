# SPDX-License-Identifier: Apache-2.0
from .data_loader_base import AsyncDataLoaderMixin as AsyncDataLoaderMixin
from .data_loader_base import BaseDataLoader as BaseDataLoader
