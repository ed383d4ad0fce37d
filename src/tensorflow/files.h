/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorflow: hdfs:// and hopsfs:// for tf.io.gfile, tf.data and whatever else
 * opens files by URL. No import of ours: TensorFlow loads the library by itself.
 *
 *   fs_api.h      TensorFlow's C interface for file systems
 *   files.c       names and folders; the registration
 *   open_file.c   what is read and written
 *
 * What TensorFlow frees comes from malloc, through base/mem.h.
 */
#ifndef HY_TENSORFLOW_FILES_H
#define HY_TENSORFLOW_FILES_H

#include "tensorflow/fs_api.h"

/* Offers the schemes to TensorFlow. 0, or -EEXIST (another library serves them) or -ENOSYS. */
int hy_files_register(struct hy_err *err);

/* What a call of src/fs came to, in TensorFlow's words; true when all is well (then `err` may be NULL). */
bool hy_files_say(TF_Status *status, int64_t rc, const struct hy_err *err);

extern const TF_RandomAccessFileOps hy_files_read_ops;
extern const TF_WritableFileOps hy_files_write_ops;
void hy_files_open_to_read(const TF_Filesystem *fs, const char *url, TF_RandomAccessFile *file, TF_Status *status);
TF_FilesystemWriteOp hy_files_open_to_write, hy_files_open_to_append;

#endif
