/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorflow: hdfs:// and hopsfs:// for tf.io.gfile, tf.data and everything else
 * that opens files by URL. Programs need not import hopyard: TensorFlow loads the
 * library itself.
 *
 *   fs_api.h      TensorFlow's C interface for file systems
 *   files.c       paths and directories; the registration
 *   open_file.c   reading and writing
 *
 * Memory that TensorFlow frees is allocated with malloc, through base/mem.h.
 */
#ifndef HY_TENSORFLOW_FILES_H
#define HY_TENSORFLOW_FILES_H

#include "tensorflow/fs_api.h"

/* Registers the schemes with TensorFlow. 0, or -EEXIST (another library has registered them) or -ENOSYS. */
int hy_files_register(struct hy_err *err);

/* Converts the result of a call of src/fs to a status; true on success (then `err` may be NULL). */
bool hy_files_set_status(TF_Status *status, int64_t rc, const struct hy_err *err);

extern const TF_RandomAccessFileOps hy_files_read_ops;
extern const TF_WritableFileOps hy_files_write_ops;
void hy_files_open_to_read(const TF_Filesystem *fs, const char *url, TF_RandomAccessFile *file, TF_Status *status);
TF_FilesystemWriteOp hy_files_open_to_write, hy_files_open_to_append;

#endif
