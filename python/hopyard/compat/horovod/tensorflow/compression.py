# SPDX-License-Identifier: Apache-2.0
from hopyard.hvd.compression import Compression as Compression
from hopyard.hvd.compression import Compressor as Compressor
from hopyard.hvd.compression import FP16Compressor as FP16Compressor
from hopyard.hvd.compression import NoneCompressor as NoneCompressor
