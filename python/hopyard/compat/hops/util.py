# SPDX-License-Identifier: Apache-2.0
from hopyard.util import grid_params as grid_params
from hopyard.util import num_executors as num_executors
from hopyard.util import num_param_servers as num_param_servers

from ._calls import needs_hopsworks


def __getattr__(name: str) -> object:
    return needs_hopsworks(__name__, name, {
        "attach_jupyter_configuration_to_notebook", "connect", "get_flink_conf_dir", "get_flink_lib_dir",
        "get_hadoop_classpath_glob", "get_hadoop_home", "get_job_name", "get_jwt", "get_notebook_kernel_id",
        "get_redshift_username_password", "get_requests_verify", "get_secret", "http", "notebook_post_save",
        "parse_redhift_jdbc_url", "send_request", "set_auth_header", "write_b64_cert_to_bytes",
    })  # fmt: skip
